// Which level this processor runs.
#include <cstring>

#include "level.hpp"

namespace radixrt::cpu {

namespace portable {
extern const Level level;
}
#if defined(__x86_64__)
namespace avx512 {
extern const Level level;
}
namespace avx2 {
extern const Level level;
}
#endif

std::vector<const Level*> levels() {
    std::vector<const Level*> found;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vnni") &&
        __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        found.push_back(&avx512::level);
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c"))
        found.push_back(&avx2::level);
#endif
    found.push_back(&portable::level);
    return found;
}

const Level* find_level(const char* name) {
    for (const Level* level : levels())
        if (name == nullptr || std::strcmp(name, level->name) == 0) return level;
    return nullptr;
}

}  // namespace radixrt::cpu
