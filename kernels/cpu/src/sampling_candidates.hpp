// From a row's logits to the tokens that may be chosen, with penalties, biases and masks. Included inside a level's
// namespace by sampling_phases.hpp.

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
