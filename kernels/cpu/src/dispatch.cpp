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

namespace {

struct Candidate {
    const Level* level;
    bool runs;
};

}  // namespace

const Level* find_level(const char* name) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    const Candidate candidates[] = {
        {&avx512::level, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                             __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bf16")},
        {&avx2::level, __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")},
        {&portable::level, true},
    };
#else
    const Candidate candidates[] = {{&portable::level, true}};
#endif
    for (const auto& candidate : candidates)
        if (candidate.runs && (name == nullptr || std::strcmp(name, candidate.level->name) == 0)) return candidate.level;
    return nullptr;
}

}  // namespace radixrt::cpu
