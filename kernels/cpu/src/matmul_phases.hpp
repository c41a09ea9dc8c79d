// Matrix products with packed weights. Included inside a level's namespace.

// Of each row the sum of each block of 32 elements.
static void sum_blocks(const uint16_t* x, int64_t blocks, float* sums) {
    const uint16_t ones[2] = {0x3F80, 0x3F80};
    Pairs one = splat_pair(ones);
    for (int64_t block = 0; block < blocks; ++block)
        sums[block] = sum(dot(zero(), load_pairs(x + kBlock * block), one));
}

// A group of rows times a pair of panels is an item, the pairs of one group after another. A group's x should stay in a
// core's second cache while the panels go by.
struct Groups {
    int64_t rows;   // in each group but the last
    int64_t count;
    int64_t pairs;
    int64_t grain;  // items a worker takes at once
};

static Groups groups_of(int64_t rows, int64_t row_bytes, int64_t pairs, int workers) {
    constexpr int64_t kGroupBytes = 384 << 10;
    int64_t group = kGroupBytes / row_bytes / kTileRows * kTileRows;
    if (group < 8 * kTileRows) group = 8 * kTileRows;
    if (group > rows) group = rows;
    int64_t count = (rows + group - 1) / group;
    int64_t grain = count * pairs / (8 * workers);
    return {group, count, pairs, grain < 1 ? 1 : grain > 8 ? 8 : grain};
}

// One product's x @ weight.T. The panels of pair p are the `step * p`-th and `gap` further.
struct Product {
    const uint16_t* x;
    int64_t x_stride;
    int64_t rows;
    const Packed& weight;
    uint8_t* scratch;
    int64_t step;
    int64_t gap;
};

// Calls store(first_row, rows, pair, sums) for each tile of the product.
template <typename Store>
static void multiply(Worker& worker, const Product& p, Store store) {
    if (p.rows == 0) return;
    const Packed& weight = p.weight;
    int64_t blocks = weight.blocks(), panel_bytes = weight.panel_bytes(), row_sums = 0;
    bool coded = weight.codes_activations();
    const uint8_t* x = (const uint8_t*)p.x;
    int64_t x_stride = p.x_stride * (int64_t)sizeof(uint16_t), row_bytes = weight.inner * (int64_t)sizeof(uint16_t);
    float* block_sums = (float*)p.scratch;
    if (coded) {
        x = p.scratch;
        x_stride = row_bytes = blocks * (int64_t)sizeof(CodedBlock);
        for (Chunk chunk = worker.first(p.rows, 4); chunk; chunk = worker.next())
            for (int64_t row = chunk.begin; row < chunk.end; ++row)
                code_row(weight.format, p.x + row * p.x_stride, blocks, (CodedBlock*)(p.scratch + row * row_bytes));
        worker.barrier();
    } else if (weight.format == Format::q4_1) {
        row_sums = blocks;
        for (Chunk chunk = worker.first(p.rows, 4); chunk; chunk = worker.next())
            for (int64_t row = chunk.begin; row < chunk.end; ++row)
                sum_blocks(p.x + row * p.x_stride, blocks, block_sums + row * blocks);
        worker.barrier();
    }
    Groups groups = groups_of(p.rows, row_bytes, weight.panels() / 2, worker.count());
    TileSums sums;
    auto panel_of = [&](int64_t item) { return weight.data + item % groups.pairs * p.step * panel_bytes; };
    Chunk later;
    for (Chunk items = worker.first(groups.count * groups.pairs, groups.grain); items; items = later)
        for (int64_t item = items.begin; item < items.end; ++item) {
            // The next chunk is taken before this one ends, so that its panels can be fetched meanwhile.
            bool last_item = item + 1 == items.end;
            if (last_item) later = worker.next();
            const uint8_t *panel = panel_of(item), *following = panel;
            if (!last_item) following = panel_of(item + 1);
            if (last_item && later) following = panel_of(later.begin);
            int64_t first = item / groups.pairs * groups.rows;
            int64_t last = first + groups.rows < p.rows ? first + groups.rows : p.rows;
            Tile tile{x + first * x_stride, x_stride, {panel, panel + p.gap * panel_bytes},
                      block_sums + first * row_sums, weight.inner, following - panel};
            for (int64_t row = first; row < last; row += kTileRows) {
                int64_t rows = last - row < kTileRows ? last - row : kTileRows;
                (coded ? coded_tile_of(weight.format, rows) : tile_of(weight.format, rows))(tile, sums);
                store(row, rows, item % groups.pairs, sums);
                tile.x += kTileRows * x_stride;
                tile.sums += kTileRows * row_sums;
                tile.ahead = 0;
            }
        }
}

static void matmul(Worker& worker, const MatmulArgs& a) {
    auto store_tile = [&](int64_t first, int64_t rows, int64_t pair, const TileSums& sums) {
        for (int panel = 0; panel < 2; ++panel) {
            int64_t output = (2 * pair + panel) * kPanel;
            int64_t left = a.weight.outputs - output;
            if (left <= 0) return;
            int count = left < kPanel ? (int)left : (int)kPanel;
            f32x16 bias = !a.bias ? zero() : count == kPanel ? load(a.bias + output) : load_first(a.bias + output, count);
            for (int64_t row = 0; row < rows; ++row) {
                float* out = a.out + (first + row) * a.out_stride + output;
                f32x16 value = load(sums.of[panel][row]);
                if (a.bias) value = value + bias;
                if (count == kPanel) {
                    store(out, a.accumulate ? load(out) + value : value);
                } else {
                    store_first(out, a.accumulate ? load_first(out, count) + value : value, count);
                }
            }
        }
    };
    multiply(worker, {a.x, a.x_stride, a.rows, a.weight, a.scratch, 2, 1}, store_tile);
}

static void matmul_silu(Worker& worker, const MatmulSiluArgs& a) {
    auto store_tile = [&](int64_t first, int64_t rows, int64_t pair, const TileSums& sums) {
        for (int64_t row = 0; row < rows; ++row)
            store_bf16(a.out + (first + row) * a.out_stride + pair * kPanel,
                       silu(load(sums.of[0][row])) * load(sums.of[1][row]));
    };
    multiply(worker, {a.x, a.x_stride, a.rows, a.weight, a.scratch, 1, a.weight.outputs / kPanel / 2}, store_tile);
}

// One output's row of a packed matrix, as it is dequantised.
static void embed_row(const Packed& table, int64_t id, float* out) {
    int64_t lane = id % kPanel;
    const uint8_t* block = table.data + id / kPanel * table.panel_bytes();
    for (int64_t begin = 0; begin < table.inner; begin += kBlock, block += block_bytes(table.format)) {
        int64_t count = table.inner - begin < kBlock ? table.inner - begin : kBlock;
        float scale[16], minimum[16] = {};
        switch (table.format) {
            case Format::bfloat16: {
                float pair[16];
                for (int64_t i = 0; i < count; ++i) {
                    store(pair, load_bf16((const uint16_t*)block + i / 2 * 32 + lane / 8 * 16));
                    out[begin + i] = pair[2 * (lane % 8) + i % 2];
                }
                break;
            }
            case Format::q8_0:
                store(scale, scales<Format::q8_0>(block, 0));
                for (int i = 0; i < kBlock; ++i)
                    out[begin + i] = scale[lane] * (float)(int8_t)block[i / 2 * 32 + 2 * lane + i % 2];
                break;
            case Format::q4_0:
            case Format::q4_1: {
                store(scale, scales<Format::q4_1>(block, 0));
                bool centred = table.format == Format::q4_0;
                if (!centred) store(minimum, scales<Format::q4_1>(block, 1));
                for (int i = 0; i < kBlock; ++i) {
                    uint16_t word;
                    __builtin_memcpy(&word, block + i / 8 * 64 + 4 * lane + 2 * (i % 2), sizeof word);
                    int number = (word >> (4 * (i % 8 / 2)) & 15) - (centred ? 8 : 0);
                    out[begin + i] = scale[lane] * (float)number + minimum[lane];
                }
            }
        }
    }
}

static void embed(Worker& worker, const EmbedArgs& a) {
    for (Chunk rows = worker.first(a.rows, 4); rows; rows = worker.next())
        for (int64_t row = rows.begin; row < rows.end; ++row)
            embed_row(a.table, a.ids[row], a.out + row * a.table.inner);
}
