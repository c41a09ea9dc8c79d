// Rotary embedding and the write of keys and values, a token an item. Included inside a level's namespace.

constexpr int kMaxHeadDim = 1024;

// A head in float32, rotated by pairs (i, i + rotary_dim / 2), rounded once. Elements past rotary_dim pass unchanged;
// `out` has room for the next multiple of 16.
static void rotate(const float* x, const float* cos_sin, int64_t rotary_dim, int64_t head_dim, uint16_t* out) {
    float turned[kMaxHeadDim];
    int64_t half = rotary_dim / 2;
    const float* cos = cos_sin;
    const float* sin = cos_sin + half;
    for (int64_t i = 0; i < half; ++i) {
        turned[i] = x[i] * cos[i] - x[i + half] * sin[i];
        turned[i + half] = x[i + half] * cos[i] + x[i] * sin[i];
    }
    for (int64_t i = rotary_dim; i < head_dim; ++i) turned[i] = x[i];
    for (int64_t i = head_dim; i % 16; ++i) turned[i] = 0.0f;
    for (int64_t i = 0; i < head_dim; i += 16) store_bf16(out + i, load(turned + i));
}

// Both rows are padded with zeros to padded_dim.
static void write_slot(const KvPool& pool, uint16_t* layer, int64_t slot, int64_t head, const uint16_t* key,
                       const uint16_t* value) {
    if (!pool.in_tiles()) {
        uint16_t* row = layer + pool.row(slot, head);
        __builtin_memcpy(row, key, pool.padded_dim * sizeof(uint16_t));
        __builtin_memcpy(row + pool.padded_dim, value, pool.padded_dim * sizeof(uint16_t));
        return;
    }
    uint16_t* keys = layer + pool.tile(slot / kTileKeys, head) + slot % kTileKeys * 2;
    for (int64_t i = 0; i < pool.padded_dim; i += 2)
        __builtin_memcpy(keys + i * kTileKeys, key + i, 2 * sizeof(uint16_t));
    uint16_t* values = layer + pool.tile(slot / kTileKeys, head) + kTileKeys * pool.padded_dim;
    values += slot % kTileKeys / 2 * 2 * pool.padded_dim + slot % 2;
    for (int64_t i = 0; i < pool.padded_dim; ++i) values[2 * i] = value[i];
}

static void rotary_token(const RotaryArgs& a, int64_t token) {
    const KvPool& pool = a.pool;
    int64_t head_dim = pool.head_dim;
    const float* cos_sin = a.cos_sin + a.positions[token] * a.rotary_dim;
    uint16_t key[kMaxHeadDim], value[kMaxHeadDim];
    uint16_t* layer = pool.layer(a.layer);
    for (int64_t head = 0; head < pool.kv_heads; ++head) {
        rotate(a.k + token * a.k_stride + head * head_dim, cos_sin, a.rotary_dim, head_dim, key);
        rotate(a.v + token * a.v_stride + head * head_dim, cos_sin, 0, head_dim, value);
        write_slot(pool, layer, a.slots[token], head, key, value);
    }
    for (int64_t head = 0; head < a.heads; ++head) {
        rotate(a.q + token * a.q_stride + head * head_dim, cos_sin, a.rotary_dim, head_dim, key);
        __builtin_memcpy(a.out + (token * a.heads + head) * head_dim, key, head_dim * sizeof(uint16_t));
    }
}

static void rotary_write_kv(Worker& worker, const RotaryArgs& a) {
    // Neighbouring tokens lie in the same cache lines of a tile: long runs of them go to one worker.
    for (Chunk tokens = worker.first(a.tokens, a.tokens < 64 ? 1 : kTileKeys); tokens; tokens = worker.next())
        for (int64_t token = tokens.begin; token < tokens.end; ++token) rotary_token(a, token);
}
