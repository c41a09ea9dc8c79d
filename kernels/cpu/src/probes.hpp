// What the processor can do at best, for benchmarks to compare kernels with. Included inside a level's namespace.

// `count` pair products into each of 16 sums on each worker: 64 * 16 * count operations.
static void probe_dots(Worker&, int64_t count) {
    f32x16 sums[16];
    const uint16_t one[2] = {0x3F80, 0};
    Pairs pairs = splat_pair(one);
    for (auto& sum : sums) sum = zero();
    for (int64_t i = 0; i < count; ++i) {
#pragma GCC unroll 16
        for (auto& sum : sums) sum = dot(sum, pairs, pairs);
    }
    float total = 0;
    for (auto& s : sums) total += sum(s);
    volatile float kept = total;
    (void)kept;
}

// Reads each byte once, in 64 KiB chunks.
static void probe_read(Worker& worker, const uint8_t* data, int64_t bytes) {
    f32x16 sums[4] = {zero(), zero(), zero(), zero()};
    constexpr int64_t kChunk = 64 << 10;
    for (Chunk chunk = worker.first(bytes / kChunk, 4); chunk; chunk = worker.next()) {
        const float* p = (const float*)(data + chunk.begin * kChunk);
        const float* end = (const float*)(data + chunk.end * kChunk);
        for (; p < end; p += 64)
            for (int i = 0; i < 4; ++i) sums[i] = max(sums[i], load(p + 16 * i));
    }
    float total = sum(max(max(sums[0], sums[1]), max(sums[2], sums[3])));
    volatile float kept = total;
    (void)kept;
}
