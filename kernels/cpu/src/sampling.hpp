// From logits to tokens and log-probabilities: arguments of the phases, and the memory that they work in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace radixrt::cpu {

// How one row's token is chosen. Laid out as SAMPLING_ROW in kernels/sampling.py, which says what each field means.
struct SampleRow {
    double temperature;
    double top_p;
    double min_p;
    double uniform;
    double repetition_penalty;
    double frequency_penalty;
    double presence_penalty;
    int64_t top_k;
    int64_t first_id;    // the row's ids: forbidden, prompt, output, biased, one after another
    int64_t first_bias;
    int32_t logprobs;    // -1: none
    int32_t mask;        // -1: none
    int32_t forbidden;   // the next four: how many ids
    int32_t prompt;
    int32_t output;
    int32_t biased;
};
static_assert(sizeof(SampleRow) == 104);

// In place of a token; NoToken in kernels/sampling.py.
enum NoToken : int32_t { not_finite = -1, all_minus_infinity = -2, all_forbidden = -3 };

// What one worker works in. `counts` is all zeros between rows.
struct SampleScratch {
    double* values;   // [vocabulary, padded]
    double* spare;    // [vocabulary, padded]
    double* sums;     // [blocks]
    double* maxima;   // [blocks, 8]
    int32_t* ids;     // [vocabulary, padded]
    int32_t* counts;  // [vocabulary]
};

struct SampleArgs {
    const float* logits;  // [rows, width]
    int64_t rows;
    int64_t vocabulary;   // the first so many may be chosen
    int64_t width;        // log-probabilities count them all
    int64_t stride;       // elements from row to row
    const SampleRow* specs;
    const int32_t* ids;
    const double* biases;
    const int32_t* masks;  // [masks, mask_words]
    int64_t mask_words;
    int32_t* tokens;        // [rows]
    double* chosen;         // [rows]; this and the next two are written where a row wants log-probabilities
    int32_t* best;          // [rows, best_width]
    double* best_logprobs;  // [rows, best_width]
    int64_t best_width;
    const SampleScratch* scratch;  // one a worker
};

// out[r] = log(softmax(logits[r])[targets[r]]); NaN where the logits are not finite.
struct ScoreArgs {
    const float* logits;  // [rows, vocabulary]
    int64_t rows;
    int64_t vocabulary;
    int64_t stride;
    const int32_t* targets;  // [rows]
    double* out;             // [rows]
};

// The scratch of every worker, made once for a vocabulary.
class SampleMemory {
public:
    const SampleScratch* workers(int count, int64_t vocabulary);

private:
    int count_ = 0;
    int64_t vocabulary_ = 0;
    std::unique_ptr<std::byte[]> bytes_;
    std::unique_ptr<SampleScratch[]> scratch_;
};

// Values are summed and searched in blocks of so many.
constexpr int64_t kSampleBlock = 512;

}  // namespace radixrt::cpu
