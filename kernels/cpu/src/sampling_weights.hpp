// From candidates to weights, and from weights to one of them. Included inside a level's namespace by
// sampling_phases.hpp.

// Turns values into weights, e^((value - highest) / temperature), and notes each block's sum and its lanes' maxima.
static void weigh(Candidates c, double highest, double temperature, const SampleScratch& s) {
    const f64x8 top = splat_f64(highest), divisor = splat_f64(temperature);
    for (int64_t begin = 0, block = 0; begin < c.count; begin += kSampleBlock, ++block) {
        int64_t end = begin + kSampleBlock < padded(c.count) ? begin + kSampleBlock : padded(c.count);
        f64x8 total = splat_f64(0.0), most = splat_f64(0.0);
        for (int64_t i = begin; i < end; i += 8) {
            f64x8 distance = load_f64(c.values + i) - top;
            f64x8 weight = exp(temperature == 1 ? distance : distance / divisor);
            store_f64(c.values + i, weight);
            total = total + weight;
            most = max(weight, most);
        }
        s.sums[block] = sum(total);
        store_f64(s.maxima + 8 * block, most);
    }
}

static void sum_blocks(Candidates c, double* sums) {
    for (int64_t begin = 0, block = 0; begin < c.count; begin += kSampleBlock, ++block) {
        int64_t end = begin + kSampleBlock < padded(c.count) ? begin + kSampleBlock : padded(c.count);
        f64x8 total = splat_f64(0.0);
        for (int64_t i = begin; i < end; i += 8) total = total + load_f64(c.values + i);
        sums[block] = sum(total);
    }
}

static inline int64_t blocks(Candidates c) { return (c.count + kSampleBlock - 1) / kSampleBlock; }

static double total(Candidates c, const double* sums) {
    double r = 0;
    for (int64_t block = 0; block < blocks(c); ++block) r += sums[block];
    return r;
}

// The first of the weights at which their running sum passes `uniform` of the whole.
static int64_t draw(Candidates c, const double* sums, double uniform) {
    const double target = uniform * total(c, sums);
    double before = 0;
    int64_t block = 0;
    for (; block + 1 < blocks(c) && before + sums[block] <= target; ++block) before += sums[block];
    int64_t end = (block + 1) * kSampleBlock < c.count ? (block + 1) * kSampleBlock : c.count;
    for (int64_t i = block * kSampleBlock; i < end; ++i) {
        before += c.values[i];
        if (before > target) return i;
    }
    // A product rounded up to the whole sum, or past a block's, belongs to the last token of any weight.
    while (end > 1 && !(c.values[end - 1] > 0)) --end;
    return end - 1;
}
