// From logits to tokens and log-probabilities, a row an item. Included inside a level's namespace.
//
// The numbers are those of kernels/reference/sampling.py, in float64 wherever it uses float64; sums are taken in blocks
// of kSampleBlock and from left to right, whatever the row.

static constexpr double kInfinity = __builtin_inf();
static constexpr double kSmallest = 0x1p-1022;  // of the normal numbers

struct Best {
    double value;
    int64_t index;  // the lowest, if several have it
};

// The greatest logit. NaN counts as infinity; where that is the value, or -infinity, the index means nothing.
static Best best_logit(const float* x, int64_t n) {
    // min(NaN, infinity) is infinity: it gives its second argument where the first is not below it.
    const f32x16 infinity = splat(__builtin_inff()), nothing = splat(-__builtin_inff());
    float best = -__builtin_inff();
    int64_t first = 0;
    for (int64_t begin = 0; begin < n; begin += kSampleBlock) {
        int64_t count = n - begin < kSampleBlock ? n - begin : kSampleBlock;
        f32x16 even = nothing, odd = nothing;
        int64_t i = 0;
        for (; i + 32 <= count; i += 32) {
            even = max(min(load(x + begin + i), infinity), even);
            odd = max(min(load(x + begin + i + 16), infinity), odd);
        }
        for (; i + 16 <= count; i += 16) even = max(min(load(x + begin + i), infinity), even);
        int rest = (int)(count - i);
        if (rest) odd = max(first_lanes(rest, min(load_first(x + begin + i, rest), infinity), nothing), odd);
        float top = greatest(max(even, odd));
        if (top > best) {
            best = top;
            first = begin;
        }
    }
    if (best < __builtin_inff() && best > -__builtin_inff())
        while (x[first] != best) ++first;
    return {best, first};
}

// Tokens that may still be chosen, by ascending id. Values from `count` up to a multiple of eight can never win.
struct Candidates {
    double* values;
    const int32_t* ids;  // null: value i is token i's
    int64_t count;
};

static inline int64_t padded(int64_t count) { return (count + 7) / 8 * 8; }

static void pad(Candidates c, double with) {
    for (int64_t i = c.count; i < padded(c.count); ++i) c.values[i] = with;
}

static Best best_value(Candidates c) {
    double best = -kInfinity;
    int64_t first = 0;
    for (int64_t begin = 0; begin < c.count; begin += kSampleBlock) {
        int64_t end = begin + kSampleBlock < padded(c.count) ? begin + kSampleBlock : padded(c.count);
        f64x8 top = splat_f64(-kInfinity);
        for (int64_t i = begin; i < end; i += 8) top = max(load_f64(c.values + i), top);
        if (greatest(top) > best) {
            best = greatest(top);
            first = begin;
        }
    }
    if (best > -kInfinity)
        while (c.values[first] != best) ++first;
    return {best, first};
}

static inline bool changes_values(const SampleRow& spec) {
    return spec.repetition_penalty != 1 || spec.frequency_penalty != 0 || spec.presence_penalty != 0 || spec.biased;
}

// Penalties and biases. `counts` is zero everywhere before and after.
static void change_values(const SampleArgs& a, const SampleRow& spec, double* values, int32_t* counts) {
    const int32_t* prompt = a.ids + spec.first_id + spec.forbidden;
    const int32_t* output = prompt + spec.prompt;
    const int32_t* biased = output + spec.output;
    if (spec.repetition_penalty != 1) {
        const int64_t seen = (int64_t)spec.prompt + spec.output;
        for (int64_t i = 0; i < seen; ++i) {
            int32_t token = prompt[i];
            if (counts[token]++) continue;
            double value = values[token];
            values[token] = value > 0 ? value / spec.repetition_penalty : value * spec.repetition_penalty;
        }
        for (int64_t i = 0; i < seen; ++i) counts[prompt[i]] = 0;
    }
    if (spec.frequency_penalty != 0 || spec.presence_penalty != 0) {
        for (int32_t i = 0; i < spec.output; ++i) ++counts[output[i]];
        for (int32_t i = 0; i < spec.output; ++i) {
            int32_t token = output[i];
            if (!counts[token]) continue;
            values[token] -= spec.frequency_penalty * counts[token] + spec.presence_penalty;
            counts[token] = 0;
        }
    }
    for (int32_t i = 0; i < spec.biased; ++i) values[biased[i]] += a.biases[spec.first_bias + i];
}

// Whether a mask allows so few tokens that a list of them is shorter work than the whole vocabulary.
static bool allows_few(const int32_t* mask, int64_t words, int64_t vocabulary) {
    int64_t allowed = 0;
    for (int64_t w = 0; w < words; ++w) allowed += __builtin_popcount((uint32_t)mask[w]);
    return allowed <= vocabulary / 8;
}

static Candidates list_allowed(const float* row, int64_t n, const int32_t* mask, int64_t words, const SampleScratch& s) {
    int64_t count = 0;
    for (int64_t w = 0; w < words && w * 32 < n; ++w)
        for (uint32_t bits = (uint32_t)mask[w]; bits; bits &= bits - 1) {
            int64_t token = w * 32 + __builtin_ctz(bits);
            if (token >= n) break;
            s.values[count] = row[token];
            s.ids[count++] = (int32_t)token;
        }
    return {s.values, s.ids, count};
}

static void widen(const float* row, int64_t n, double* values) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) store_f64(values + i, load_f64(row + i));
    for (; i < n; ++i) values[i] = row[i];
}

static void widen_allowed(const float* row, int64_t n, const int32_t* mask, int64_t words, double* values) {
    const f64x8 nothing = splat_f64(-kInfinity);
    int64_t i = 0;
    for (; i + 8 <= n && i < words * 32; i += 8)
        store_f64(values + i, select_bits((uint32_t)mask[i / 32] >> i % 32 & 255, load_f64(row + i), nothing));
    for (; i < n; ++i) {
        bool allowed = i < words * 32 && ((uint32_t)mask[i / 32] >> i % 32 & 1);
        values[i] = allowed ? row[i] : -kInfinity;
    }
}

// The row's logits as `spec` changes them; tokens that may not be chosen are at -infinity or left out.
static Candidates candidates(const SampleArgs& a, const SampleRow& spec, const float* row, const SampleScratch& s) {
    const int64_t n = a.vocabulary, words = a.mask_words;
    const int32_t* mask = spec.mask < 0 ? nullptr : a.masks + spec.mask * words;
    Candidates c = {s.values, nullptr, n};
    if (mask && !spec.forbidden && !changes_values(spec) && allows_few(mask, words, n)) {
        c = list_allowed(row, n, mask, words, s);
    } else {
        if (mask) {
            widen_allowed(row, n, mask, words, s.values);
        } else {
            widen(row, n, s.values);
        }
        change_values(a, spec, s.values, s.counts);
        for (int32_t i = 0; i < spec.forbidden; ++i) s.values[a.ids[spec.first_id + i]] = -kInfinity;
    }
    pad(c, -kInfinity);
    return c;
}

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

// The logarithm of the sum of the exponentials of logits whose greatest is `highest`, a finite number.
static double log_normaliser(const float* row, int64_t n, double highest) {
    const f64x8 top = splat_f64(highest);
    double all = 0;
    for (int64_t begin = 0; begin < n; begin += kSampleBlock) {
        int64_t end = begin + kSampleBlock < n ? begin + kSampleBlock : n, i = begin;
        f64x8 total = splat_f64(0.0);
        for (; i + 8 <= end; i += 8) total = total + exp(load_f64(row + i) - top);
        if (i < end) {
            double lanes[8];
            for (int lane = 0; lane < 8; ++lane) lanes[lane] = i + lane < end ? row[i + lane] : -kInfinity;
            total = total + exp(load_f64(lanes) - top);
        }
        all += sum(total);
    }
    return highest + __builtin_log(all);
}

// The `count` best logits, best first, the lower id first among equals.
static void best_logits(const float* row, int64_t n, int64_t count, int32_t* ids) {
    constexpr int64_t stretch = 64;
    int64_t have = 0;
    for (int64_t begin = 0; begin < n && count > 0; begin += stretch) {
        int64_t end = begin + stretch < n ? begin + stretch : n;
        if (have == count && begin + stretch <= n) {
            f32x16 top = max(max(load(row + begin), load(row + begin + 16)),
                             max(load(row + begin + 32), load(row + begin + 48)));
            if (!(greatest(top) > row[ids[count - 1]])) continue;
        }
        for (int64_t i = begin; i < end; ++i) {
            if (have == count && !(row[i] > row[ids[count - 1]])) continue;
            int64_t place = have < count ? have++ : count - 1;
            for (; place > 0 && row[ids[place - 1]] < row[i]; --place) ids[place] = ids[place - 1];
            ids[place] = (int32_t)i;
        }
    }
}

static void log_probabilities(const SampleArgs& a, int64_t item, const float* row, double highest) {
    const int64_t wanted = a.specs[item].logprobs, count = wanted < a.vocabulary ? wanted : a.vocabulary;
    int32_t* best = a.best + item * a.best_width;
    const double normaliser = log_normaliser(row, a.width, highest);
    a.chosen[item] = row[a.tokens[item]] - normaliser;
    best_logits(row, a.vocabulary, count, best);
    for (int64_t i = 0; i < count; ++i) a.best_logprobs[item * a.best_width + i] = row[best[i]] - normaliser;
}

static int32_t choose(const SampleArgs& a, const SampleRow& spec, const float* row, Best raw, const SampleScratch& s) {
    const bool changes = spec.mask >= 0 || spec.forbidden || changes_values(spec);
    if (spec.temperature == 0 && !changes) return (int32_t)raw.index;
    Candidates c = candidates(a, spec, row, s);
    const Best best = changes ? best_value(c) : raw;
    if (best.value == -kInfinity) return all_forbidden;
    int64_t index = best.index;
    if (spec.temperature != 0) {
        weigh(c, best.value, spec.temperature, s);
        if (filters(spec)) filter(c, spec, s);
        index = draw(c, s.sums, spec.uniform);
    }
    return c.ids ? c.ids[index] : (int32_t)index;
}

static void sample(Worker& worker, const SampleArgs& a) {
    for (Chunk rows = worker.first(a.rows, 1); rows; rows = worker.next()) {
        const int64_t item = rows.begin;
        const float* row = a.logits + item * a.stride;
        const Best best = best_logit(row, a.vocabulary);
        const double padding = best_logit(row + a.vocabulary, a.width - a.vocabulary).value;
        if (best.value == kInfinity || padding == kInfinity) {
            a.tokens[item] = not_finite;
        } else if (best.value == -kInfinity) {
            a.tokens[item] = all_minus_infinity;
        } else {
            a.tokens[item] = choose(a, a.specs[item], row, best, a.scratch[worker.index]);
            if (a.specs[item].logprobs >= 0 && a.tokens[item] >= 0)
                log_probabilities(a, item, row, best.value > padding ? best.value : padding);
        }
    }
}

static void score(Worker& worker, const ScoreArgs& a) {
    for (Chunk rows = worker.first(a.rows, 1); rows; rows = worker.next()) {
        const int64_t item = rows.begin;
        const float* row = a.logits + item * a.stride;
        const double highest = best_logit(row, a.vocabulary).value;
        const bool finite = highest < kInfinity && highest > -kInfinity;
        a.out[item] = finite ? row[a.targets[item]] - log_normaliser(row, a.vocabulary, highest) : __builtin_nan("");
    }
}
