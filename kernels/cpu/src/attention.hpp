// Paged keys and values, and attention over them: arguments of the phases.
#pragma once

#include <cstdint>

namespace radixrt::cpu {

struct RotaryArgs {};

struct AttentionArgs {};

}  // namespace radixrt::cpu
