// A whole step of a decoder in one region of the thread pool: the phases that Python could call one by one, in the
// order of kernels/decoder.py and with the same bits.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "attention.hpp"
#include "level.hpp"
#include "matmul.hpp"
#include "plan.hpp"
#include "threads.hpp"

namespace radixrt::cpu {

// Some of a projection's outputs: its rows may lie in several matrices, each of its own format.
struct Part {
    Packed weight;
    const float* bias;  // or null
};

using Projection = std::vector<Part>;

struct LayerWeights {
    const float* attention_norm;
    Projection qkv;
    const float* q_norm;  // null: queries are not normed
    const float* k_norm;
    Projection output;
    const float* mlp_norm;
    Projection gate_up;
    Projection down;
    int64_t heads;
    int64_t kv_heads;
    int64_t head_dim;
    float scale;
    int64_t window;
};

struct DecoderWeights {
    Packed embedding;
    std::vector<LayerWeights> layers;
    const float* final_norm;
    Packed head;
    const float* cos_sin;
    int64_t rotary_dim;
    float epsilon;

    int64_t hidden() const { return embedding.inner; }
};

// What a step is asked for. All arrays outlive the step.
struct StepArgs {
    const int64_t* token_ids;  // [plan.layout.tokens]
    Plan& plan;
    KvPool pool;
    const int64_t* logit_tokens;  // [logit_count]: tokens of the step whose logits are wanted
    int64_t logit_count;
    float* logits;  // [logit_count, head.outputs]
};

// Memory that grows to the largest step there was, aligned to a cache line.
class Workspace {
public:
    // A new size for the block numbered `index`; what it held is lost if it grows.
    template <class T>
    T* room(size_t index, int64_t count) {
        return static_cast<T*>(bytes(index, count * (int64_t)sizeof(T)));
    }

private:
    struct Free {
        void operator()(void* memory) const;
    };
    void* bytes(size_t index, int64_t size);

    struct Block {
        std::unique_ptr<void, Free> memory;
        int64_t size = 0;
    };
    std::vector<Block> blocks_;
};

// Not for use by several threads at once.
class Decoder {
public:
    Decoder(const Level& level, ThreadPool& pool, DecoderWeights weights)
        : level_(level), pool_(pool), weights_(std::move(weights)) {}

    // Throws std::out_of_range for an id that is no row of the embedding and for a logit token outside the step.
    void step(const StepArgs& args);

private:
    struct Activations;

    Activations activations(const StepArgs& args);
    void run(Worker& worker, const StepArgs& args, const Activations& a) const;
    void attend(Worker& worker, const StepArgs& args, const Activations& a, size_t index) const;
    void feed_forward(Worker& worker, const Activations& a, const LayerWeights& layer, const float* next_norm,
                      int64_t rows) const;
    void norm(Worker& worker, const Activations& a, const float* weight, int64_t rows) const;
    void project(Worker& worker, const Projection& projection, const uint16_t* x, float* out, const Activations& a,
                 int64_t rows, bool accumulate) const;
    bool fuses(const Projection& gate_up) const;

    const Level& level_;
    ThreadPool& pool_;
    const DecoderWeights weights_;
    Workspace workspace_;
    AttentionScratch scratch_;
};

}  // namespace radixrt::cpu
