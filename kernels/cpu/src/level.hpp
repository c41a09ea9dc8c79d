// What is compiled once for each kind of processor, behind a table of functions.
//
// Each function is one phase of a step: every worker of a region calls it with the same arguments, and it shares its
// items out among them. None waits for the others at its end; the caller places the barriers.
#pragma once

#include <cstdint>
#include <vector>

#include "threads.hpp"

namespace radixrt::cpu {

struct MatmulArgs;      // matmul.hpp
struct MatmulSiluArgs;  // matmul.hpp
struct AttentionArgs;   // attention.hpp
struct RotaryArgs;      // attention.hpp
struct NormArgs;        // fused.hpp
struct HeadNormArgs;    // fused.hpp
struct SiluArgs;        // fused.hpp
struct EmbedArgs;       // matmul.hpp
struct SampleArgs;      // sampling.hpp
struct ScoreArgs;       // sampling.hpp

struct Level {
    const char* name;
    void (*matmul)(Worker&, const MatmulArgs&);
    void (*matmul_silu)(Worker&, const MatmulSiluArgs&);
    void (*embed)(Worker&, const EmbedArgs&);
    void (*probe_dots)(Worker&, int64_t count);
    void (*probe_read)(Worker&, const uint8_t* data, int64_t bytes);
    void (*add_rms_norm)(Worker&, const NormArgs&);
    void (*head_norm)(Worker&, const HeadNormArgs&);
    void (*silu_multiply)(Worker&, const SiluArgs&);
    void (*rotary_write_kv)(Worker&, const RotaryArgs&);
    void (*attend)(Worker&, const AttentionArgs&);
    void (*sample)(Worker&, const SampleArgs&);
    void (*score)(Worker&, const ScoreArgs&);
};

// The levels that this processor runs, best first.
std::vector<const Level*> levels();
// The best level that this processor runs, or the named one; nullptr if it cannot run that.
const Level* find_level(const char* name);

}  // namespace radixrt::cpu
