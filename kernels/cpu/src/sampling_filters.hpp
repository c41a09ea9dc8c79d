// What top_k, top_p and min_p leave of weighed candidates. Included inside a level's namespace by sampling_phases.hpp.

// Where the largest weights end: all above `value`, and the first `equal` of those equal to it.
struct Cut {
    double value;
    int64_t equal;
};

static inline int digit_of(double weight, int shift) {
    uint64_t bits;
    __builtin_memcpy(&bits, &weight, sizeof bits);
    return (int)(bits >> shift & 1023);
}

// How far one must go down the sorted `values` until there are `count` of them, or their sum is `mass`.
static Cut walk(double* values, int64_t n, int64_t have, double sum, int64_t count, double mass) {
    Cut cut = {0.0, 0};
    for (int64_t i = 0; i < n; ++i) {
        cut.equal = i && values[i] == cut.value ? cut.equal + 1 : 1;
        cut.value = values[i];
        sum += values[i];
        if (++have >= count || sum >= mass) break;
    }
    return cut;
}

static void sort_descending(double* values, int64_t n) {
    for (int64_t i = 1; i < n; ++i) {
        double value = values[i];
        int64_t place = i;
        for (; place > 0 && values[place - 1] < value; --place) values[place] = values[place - 1];
        values[place] = value;
    }
}

// The shortest run of the largest `weights` (0 ... 1) that has `count` of them or the sum `mass`, by radix selection:
// numbers above zero are ordered as their bits are. A mass that rounding puts out of reach gives all.
static Cut find_cut(const double* weights, int64_t n, int64_t count, double mass, double* spare) {
    constexpr int few = 32;
    const int shifts[] = {52, 42, 32, 22, 12, 2, 0};
    int64_t have = 0;
    double above = 0;
    const double* in = weights;
    for (int shift : shifts) {
        int32_t counts[1024] = {};
        double sums[1024] = {};
        for (int64_t i = 0; i < n; ++i) {
            int digit = digit_of(in[i], shift);
            ++counts[digit];
            sums[digit] += in[i];
        }
        int digit = 1023;
        for (; digit >= 0; --digit) {
            if (have + counts[digit] >= count || above + sums[digit] >= mass) break;
            have += counts[digit];
            above += sums[digit];
        }
        if (digit < 0) {
            // The parts of a digit, summed anew, fall short by a rounding: its last part is the one.
            if (in == weights) return {0.0, n};
            for (digit = 0; !counts[digit]; ++digit) {
            }
            have -= counts[digit];
            above -= sums[digit];
        }
        int64_t kept = 0;
        for (int64_t i = 0; i < n; ++i) {
            spare[kept] = in[i];
            kept += digit_of(in[i], shift) == digit;
        }
        in = spare;
        n = kept;
        if (n <= few) break;
    }
    if (n <= few) sort_descending(spare, n);
    return walk(spare, n, have, above, count, mass);
}

// Leaves those of at least `floor`. A weight of zero is never drawn: it goes in any case, as does what pads the list.
static void keep_at_least(Candidates& c, double floor, int32_t* ids) {
    if (floor < kSmallest) floor = kSmallest;
    int64_t kept = 0;
    for (int64_t i = 0; i < c.count; i += 8) {
        Ids8 eight = c.ids ? load_ids(c.ids + i) : ids_from((int32_t)i);
        kept += store_at_least(load_f64(c.values + i), floor, eight, c.values + kept, ids + kept);
    }
    c = {c.values, ids, kept};
    pad(c, 0.0);
}

static void keep_above(Candidates& c, Cut cut, int32_t* ids) {
    int64_t kept = 0;
    for (int64_t i = 0; i < c.count; ++i) {
        double weight = c.values[i];
        bool equal = weight == cut.value && cut.equal > 0;
        cut.equal -= equal;
        c.values[kept] = weight;
        ids[kept] = c.ids ? c.ids[i] : (int32_t)i;
        kept += equal || weight > cut.value;
    }
    c = {c.values, ids, kept};
    pad(c, 0.0);
}

// Leaves of the weighed candidates those that top_k, top_p and min_p leave.
static void filter(Candidates& c, const SampleRow& spec, const SampleScratch& s) {
    if (spec.top_k > 0 && spec.top_k < c.count) {
        const int64_t maxima = 8 * blocks(c);
        // The k-th largest of the maxima of disjoint parts is no larger than the k-th largest of all.
        if (spec.top_k < maxima)
            keep_at_least(c, find_cut(s.maxima, maxima, spec.top_k, kInfinity, s.spare).value, s.ids);
        keep_above(c, find_cut(c.values, c.count, spec.top_k, kInfinity, s.spare), s.ids);
        sum_blocks(c, s.sums);
    }
    if (spec.top_p < 1) {
        const double whole = total(c, s.sums);
        // All weights below this one together are less than the rest, 1 - top_p. The largest weight is 1.
        const double floor = (1 - spec.top_p) * whole / (double)c.count;
        keep_at_least(c, floor < 1 ? floor : 1, s.ids);
        keep_above(c, find_cut(c.values, c.count, c.count, spec.top_p * whole, s.spare), s.ids);
    }
    if (spec.min_p > 0) keep_at_least(c, spec.min_p, s.ids);
    sum_blocks(c, s.sums);
}

static bool filters(const SampleRow& spec) { return spec.top_k > 0 || spec.top_p < 1 || spec.min_p > 0; }
