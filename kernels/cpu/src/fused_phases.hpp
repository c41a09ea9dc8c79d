// Norms and activations, a row an item. Included inside a level's namespace.

// The last lanes of a row that is no multiple of sixteen wide hold zeros, which add nothing.
static inline f32x16 load_first(const float* p, int count) {
    float lanes[16] = {};
    __builtin_memcpy(lanes, p, sizeof(float) * count);
    return load(lanes);
}
static inline void store_first(float* p, f32x16 x, int count) {
    float lanes[16];
    store(lanes, x);
    __builtin_memcpy(p, lanes, sizeof(float) * count);
}
static inline void store_bf16_first(uint16_t* p, f32x16 x, int count) {
    uint16_t lanes[16];
    store_bf16(lanes, x);
    __builtin_memcpy(p, lanes, sizeof(uint16_t) * count);
}

static void norm_row(const NormArgs& a, int64_t row) {
    const float* x = a.x ? a.x + row * a.x_stride : nullptr;
    float* residual = a.residual + row * a.residual_stride;
    uint16_t* out = a.out + row * a.out_stride;
    int64_t whole = a.width / 16 * 16;
    int rest = (int)(a.width - whole);
    f32x16 squares = zero();
    for (int64_t i = 0; i < whole; i += 16) {
        f32x16 total = load(residual + i);
        if (x) {
            total = total + load(x + i);
            store(residual + i, total);
        }
        squares = fma(total, total, squares);
    }
    if (rest) {
        f32x16 total = load_first(residual + whole, rest);
        if (x) {
            total = total + load_first(x + whole, rest);
            store_first(residual + whole, total, rest);
        }
        squares = fma(total, total, squares);
    }
    f32x16 factor = splat(1.0f / __builtin_sqrtf(sum(squares) / (float)a.width + a.epsilon));
    for (int64_t i = 0; i < whole; i += 16) store_bf16(out + i, load(residual + i) * factor * load(a.weight + i));
    if (rest) {
        f32x16 scaled = load_first(residual + whole, rest) * factor * load_first(a.weight + whole, rest);
        store_bf16_first(out + whole, scaled, rest);
    }
}

static void add_rms_norm(Worker& worker, const NormArgs& a) {
    for (Chunk rows = worker.first(a.rows, 4); rows; rows = worker.next())
        for (int64_t row = rows.begin; row < rows.end; ++row) norm_row(a, row);
}

static void head_norm(Worker& worker, const HeadNormArgs& a) {
    uint16_t rounded[1024];
    for (Chunk rows = worker.first(a.rows, 4); rows; rows = worker.next())
        for (int64_t row = rows.begin; row < rows.end; ++row)
            for (int64_t head = 0; head < a.heads; ++head) {
                float* x = a.x + row * a.stride + head * a.head_dim;
                norm_row(NormArgs{nullptr, x, a.weight, rounded, 1, a.head_dim, 0, 0, 0, a.epsilon}, 0);
                for (int64_t i = 0; i < a.head_dim; ++i) {
                    uint32_t bits = (uint32_t)rounded[i] << 16;
                    __builtin_memcpy(x + i, &bits, sizeof bits);
                }
            }
}

static inline f32x16 silu(f32x16 gate) { return gate / (splat(1.0f) + exp(zero() - gate)); }

static void silu_multiply(Worker& worker, const SiluArgs& a) {
    int64_t whole = a.width / 16 * 16;
    int rest = (int)(a.width - whole);
    for (Chunk rows = worker.first(a.rows, 4); rows; rows = worker.next())
        for (int64_t row = rows.begin; row < rows.end; ++row) {
            const float* gate = a.gate_up + row * 2 * a.width;
            const float* up = gate + a.width;
            uint16_t* out = a.out + row * a.width;
            for (int64_t i = 0; i < whole; i += 16) store_bf16(out + i, silu(load(gate + i)) * load(up + i));
            if (rest) {
                f32x16 product = silu(load_first(gate + whole, rest)) * load_first(up + whole, rest);
                store_bf16_first(out + whole, product, rest);
            }
        }
}
