// One level: compiled three times, each time for another processor and under another name.
#if defined(RADIXRT_LEVEL_AVX512) || defined(RADIXRT_LEVEL_AVX2)
#include <immintrin.h>
#endif

#include "attention.hpp"
#include "fused.hpp"
#include "level.hpp"
#include "matmul.hpp"
#include "sampling.hpp"

#if defined(RADIXRT_LEVEL_AVX512)
#define RADIXRT_LEVEL avx512
#define RADIXRT_LEVEL_NAME "avx512"
#elif defined(RADIXRT_LEVEL_AVX2)
#define RADIXRT_LEVEL avx2
#define RADIXRT_LEVEL_NAME "avx2"
#else
#define RADIXRT_LEVEL portable
#define RADIXRT_LEVEL_NAME "portable"
#endif

namespace radixrt::cpu::RADIXRT_LEVEL {

#include "simd.hpp"

#include "attention_phases.hpp"
#include "fused_phases.hpp"
#include "matmul_formats.hpp"
#include "matmul_tile.hpp"
#include "matmul_int8.hpp"
#include "matmul_phases.hpp"
#include "probes.hpp"
#include "rotary_phases.hpp"
#include "sampling_phases.hpp"

extern const Level level;
const Level level = {
    RADIXRT_LEVEL_NAME, matmul,     matmul_silu, embed,         probe_dots,
    probe_read,         add_rms_norm, head_norm, silu_multiply, rotary_write_kv,
    attend,             sample,       score,
};

}  // namespace radixrt::cpu::RADIXRT_LEVEL
