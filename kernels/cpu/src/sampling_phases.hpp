// From logits to tokens and log-probabilities, a row an item. Included inside a level's namespace.
//
// The numbers are those of kernels/reference/sampling.py, in float64 wherever it uses float64; sums are taken in blocks
// of kSampleBlock and from left to right, whatever the row.

#include "sampling_candidates.hpp"
#include "sampling_weights.hpp"

#include "sampling_filters.hpp"

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
