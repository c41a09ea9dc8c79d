// Softmax over a block of keys, and the merging of blocks. Included inside a level's namespace.

// Stands for the score of a hidden key, and for the greatest of none: finite, so that its difference to itself is 0.
constexpr float kLowest = -1e38f;

// 2^x for x <= 0, to about 1e-7; exactly 1 at 0, and exactly 0 from -160 down.
static inline f32x16 exp2(f32x16 x) {
    x = max(x, splat(-160.0f));
    f32x16 n = round(x);
    f32x16 r = x - n;
    f32x16 p = splat(0.001326472731307149f);
    p = fma(p, r, splat(0.009671512991189957f));
    p = fma(p, r, splat(0.05550733581185341f));
    p = fma(p, r, splat(0.24022242426872253f));
    p = fma(p, r, splat(0.6931470036506653f));
    p = fma(p, r, splat(1.0f));
    return scale_by_power(p, n);
}

// 2^x for x <= 0, to 1e-4, a twentieth of what rounding to bfloat16 adds; exactly 1 at 0, and exactly 0 for hidden keys.
static inline f32x16 weight_of(f32x16 x) {
    f32x16 n = round(x);
    f32x16 r = x - n;
    f32x16 p = splat(0.05500874407665677f);
    p = fma(p, r, splat(0.2422111294523808f));
    p = fma(p, r, splat(0.6932829659012935f));
    p = fma(p, r, splat(1.0f));
    return scale_by_power(p, n);
}

// The greatest score and the sum of weights of a row over some keys.
struct RowSum {
    float top;
    float weight;
};

static inline float greatest_of(const float* scores, const float* end) {
    f32x16 tops[4];
    for (int i = 0; i < 4; ++i) tops[i] = load(scores);
    for (; scores + 4 * kTileKeys <= end; scores += 4 * kTileKeys)
        for (int i = 0; i < 4; ++i) tops[i] = max(tops[i], load(scores + i * kTileKeys));
    for (; scores < end; scores += kTileKeys) tops[0] = max(tops[0], load(scores));
    return greatest(max(max(tops[0], tops[1]), max(tops[2], tops[3])));
}

// Turns a row's scores into bfloat16 weights, relative to their greatest. The row sees the keys `low` ... `high - 1` of
// the block, at least one; weights of the tiles `first` ... `end - 1` that it does not see are 0.
static RowSum soften(float* scores, uint16_t* weights, int low, int high, int first, int end) {
    int first_seen = low / kTileKeys, end_seen = (high + kTileKeys - 1) / kTileKeys;
    float* edge = scores + first_seen * kTileKeys;
    store(edge, first_lanes(low % kTileKeys, splat(kLowest), load(edge)));
    edge = scores + (end_seen - 1) * kTileKeys;
    store(edge, first_lanes(high - (end_seen - 1) * kTileKeys, load(edge), splat(kLowest)));
    float top = greatest_of(scores + first_seen * kTileKeys, scores + end_seen * kTileKeys);

    // Sums are taken over pairs of tiles at places of their own, so that it does not matter which others were computed.
    int first_pair = first_seen / 2 * 2, end_pair = (end_seen + 1) / 2 * 2;
    if (first_pair < first_seen) store(scores + first_pair * kTileKeys, splat(kLowest));
    if (end_seen < end_pair) store(scores + end_seen * kTileKeys, splat(kLowest));
    // What is summed is what weighs the values: the rounded weights.
    static const uint16_t ones[2] = {0x3F80, 0x3F80};
    f32x16 total = zero();
    for (int t = first_pair; t < end_pair; t += 2) {
        f32x16 even = weight_of(load(scores + t * kTileKeys) - splat(top));
        f32x16 odd = weight_of(load(scores + (t + 1) * kTileKeys) - splat(top));
        total = dot(total, store_bf16(weights + t * kTileKeys, even, odd), splat_pair(ones));
    }
    for (int t = first; t < first_pair; ++t) store_bf16(weights + t * kTileKeys, zero());
    for (int t = end_pair; t < end; ++t) store_bf16(weights + t * kTileKeys, zero());
    return {top, sum(total)};
}

static inline float power_of_two(float x) {
    float lanes[16];
    store(lanes, exp2(splat(x)));
    return lanes[0];
}

// Takes the following block into a row's state (values, then top and weight). A block that is hidden whole, or a state
// over no keys, changes no bit.
static void merge(float* state, const float* block, RowSum block_sum, int64_t padded_dim) {
    float* top = state + padded_dim;
    float* weight = top + 1;
    float new_top = *top > block_sum.top ? *top : block_sum.top;
    float old = power_of_two(*top - new_top), fresh = power_of_two(block_sum.top - new_top);
    *top = new_top;
    *weight = *weight * old + block_sum.weight * fresh;
    for (int64_t i = 0; i < padded_dim; i += 16)
        store(state + i, fma(load(state + i), splat(old), load(block + i) * splat(fresh)));
}

// The row's first block.
static void set_state(float* state, const float* block, RowSum block_sum, int64_t padded_dim) {
    __builtin_memcpy(state, block, padded_dim * sizeof(float));
    state[padded_dim] = block_sum.top;
    state[padded_dim + 1] = block_sum.weight;
}

static void clear_state(float* state, int64_t padded_dim) {
    __builtin_memset(state, 0, padded_dim * sizeof(float));
    state[padded_dim] = kLowest;
    state[padded_dim + 1] = 0.0f;
}
