#include "sampling.hpp"

#include <cstring>

namespace radixrt::cpu {

const SampleScratch* SampleMemory::workers(int count, int64_t vocabulary) {
    if (count <= count_ && vocabulary == vocabulary_) return scratch_.get();
    const int64_t blocks = (vocabulary + kSampleBlock - 1) / kSampleBlock;
    const int64_t padded = blocks * kSampleBlock;
    const size_t doubles = size_t(2 * padded + blocks + 8 * blocks);
    const size_t size = (doubles * sizeof(double) + size_t(2 * padded) * sizeof(int32_t) + 63) / 64 * 64;
    // Memory that is zero until written: a worker that never samples costs nothing.
    bytes_ = std::make_unique<std::byte[]>(size * size_t(count));
    scratch_ = std::make_unique<SampleScratch[]>(size_t(count));
    for (int index = 0; index < count; ++index) {
        auto* values = reinterpret_cast<double*>(bytes_.get() + size * size_t(index));
        auto* ids = reinterpret_cast<int32_t*>(values + doubles);
        scratch_[index] = {values, values + padded, values + 2 * padded, values + 2 * padded + blocks, ids, ids + padded};
    }
    count_ = count;
    vocabulary_ = vocabulary;
    return scratch_.get();
}

}  // namespace radixrt::cpu
