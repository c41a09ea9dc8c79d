#include "decoder.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>

#include "fused.hpp"

namespace radixrt::cpu {

namespace {

constexpr size_t kCacheLine = 64;

int64_t outputs(const Projection& projection) {
    int64_t total = 0;
    for (const Part& part : projection) total += part.weight.outputs;
    return total;
}

}  // namespace

void Workspace::Free::operator()(void* memory) const { std::free(memory); }

void* Workspace::bytes(size_t index, int64_t size) {
    if (blocks_.size() <= index) blocks_.resize(index + 1);
    Block& block = blocks_[index];
    if (block.size < size) {
        int64_t rounded = (size + (int64_t)kCacheLine - 1) / (int64_t)kCacheLine * (int64_t)kCacheLine;
        block.memory.reset(std::aligned_alloc(kCacheLine, (size_t)rounded));
        if (!block.memory) throw std::bad_alloc();
        block.size = rounded;
    }
    return block.memory.get();
}

// One step's activations. T: tokens of the step; once the last layer has attended, only those whose logits are wanted.
struct Decoder::Activations {
    float* residual;       // [T, hidden]
    uint16_t* normed;      // [T, hidden]
    float* qkv;            // [T, heads + 2 * kv_heads, head_dim]
    uint16_t* queries;     // [T, heads, head_dim]
    uint16_t* attended;    // [T, heads, head_dim]
    float* gate_up;        // [T, 2 * intermediate], where the product is not fused with its activation
    uint16_t* activated;   // [T, intermediate]
    uint8_t* scratch;      // see `scratch_bytes`
    float* last_residual;  // [logits, hidden]
    uint16_t* last_attended;
    std::vector<AttentionArgs> attention;  // of each layer
};

void Decoder::step(const StepArgs& args) {
    const int64_t tokens = args.plan.layout.tokens;
    for (int64_t token = 0; token < tokens; ++token)
        if (args.token_ids[token] < 0 || args.token_ids[token] >= weights_.embedding.outputs)
            throw std::out_of_range("no such row to embed");
    for (int64_t row = 0; row < args.logit_count; ++row)
        if (args.logit_tokens[row] < 0 || args.logit_tokens[row] >= tokens)
            throw std::out_of_range("logits are wanted of a token that is not in the step");
    const Activations a = activations(args);
    pool_.run([&](Worker& worker) { run(worker, args, a); });
}

Decoder::Activations Decoder::activations(const StepArgs& args) {
    const int64_t rows = args.plan.layout.tokens, hidden = weights_.hidden();
    int64_t qkv = 0, attended = 0, gate_up = 0, scratch = scratch_bytes(weights_.head, rows);
    bool fused = true;
    for (const LayerWeights& layer : weights_.layers) {
        qkv = std::max(qkv, outputs(layer.qkv));
        attended = std::max(attended, layer.heads * layer.head_dim);
        gate_up = std::max(gate_up, outputs(layer.gate_up));
        fused = fused && fuses(layer.gate_up);
        for (const Projection* projection : {&layer.qkv, &layer.output, &layer.gate_up, &layer.down})
            for (const Part& part : *projection) scratch = std::max(scratch, scratch_bytes(part.weight, rows));
    }
    Activations a{};
    a.residual = workspace_.room<float>(0, rows * hidden);
    a.normed = workspace_.room<uint16_t>(1, rows * hidden);
    a.qkv = workspace_.room<float>(2, rows * qkv);
    a.queries = workspace_.room<uint16_t>(3, rows * attended);
    a.attended = workspace_.room<uint16_t>(4, rows * attended);
    a.gate_up = fused ? nullptr : workspace_.room<float>(5, rows * gate_up);
    a.activated = workspace_.room<uint16_t>(6, rows * gate_up / 2);
    a.scratch = workspace_.room<uint8_t>(7, scratch);
    a.last_residual = workspace_.room<float>(8, args.logit_count * hidden);
    a.last_attended = workspace_.room<uint16_t>(9, args.logit_count * attended);
    // Twice: the first round makes the scratch memory as large as any layer needs, after which it stays where it is.
    for (int round = 0; round < 2; ++round) {
        a.attention.clear();
        for (size_t index = 0; index < weights_.layers.size(); ++index) {
            const LayerWeights& layer = weights_.layers[index];
            AttentionArgs attention{a.queries,  a.attended,     true, layer.heads, layer.scale,
                                    args.pool, (int64_t)index, {},   nullptr,     nullptr};
            attention.work = args.plan.attention(layer.heads, layer.kv_heads, layer.window);
            scratch_.lend(attention, pool_.size());
            a.attention.push_back(attention);
        }
    }
    return a;
}

void Decoder::run(Worker& worker, const StepArgs& args, const Activations& every) const {
    Activations a = every;
    int64_t rows = args.plan.layout.tokens;
    level_.embed(worker, EmbedArgs{args.token_ids, weights_.embedding, a.residual, rows});
    worker.barrier();
    norm(worker, a, weights_.layers.front().attention_norm, rows);
    for (size_t index = 0; index < weights_.layers.size(); ++index) {
        const LayerWeights& layer = weights_.layers[index];
        bool last = index + 1 == weights_.layers.size();
        attend(worker, args, a, index);
        if (last) {
            // Past the last layer's keys and values, only the tokens whose logits are asked for matter.
            const int64_t hidden = weights_.hidden(), attended = layer.heads * layer.head_dim;
            rows = args.logit_count;
            for (Chunk chunk = worker.first(rows, 16); chunk; chunk = worker.next())
                for (int64_t row = chunk.begin; row < chunk.end; ++row) {
                    int64_t token = args.logit_tokens[row];
                    std::memcpy(a.last_residual + row * hidden, a.residual + token * hidden, hidden * sizeof(float));
                    std::memcpy(a.last_attended + row * attended, a.attended + token * attended,
                                attended * sizeof(uint16_t));
                }
            worker.barrier();
            a.residual = a.last_residual;
            a.attended = a.last_attended;
        }
        project(worker, layer.output, a.attended, a.residual, a, rows, true);
        worker.barrier();
        norm(worker, a, layer.mlp_norm, rows);
        feed_forward(worker, a, layer, last ? weights_.final_norm : weights_.layers[index + 1].attention_norm, rows);
    }
    const int64_t hidden = weights_.hidden();
    level_.matmul(worker, MatmulArgs{a.normed, weights_.head, nullptr, args.logits, a.scratch, rows, hidden,
                                     weights_.head.outputs, false});
}

// From the normed residual stream to what attention yields.
void Decoder::attend(Worker& worker, const StepArgs& args, const Activations& a, size_t index) const {
    const LayerWeights& layer = weights_.layers[index];
    const StepLayout& layout = args.plan.layout;
    const int64_t width = outputs(layer.qkv), tokens = layout.tokens;
    float* k = a.qkv + layer.heads * layer.head_dim;
    float* v = k + layer.kv_heads * layer.head_dim;
    project(worker, layer.qkv, a.normed, a.qkv, a, tokens, false);
    worker.barrier();
    if (layer.q_norm != nullptr) {
        level_.head_norm(worker, HeadNormArgs{a.qkv, layer.q_norm, tokens, layer.heads, layer.head_dim, width,
                                              weights_.epsilon});
        level_.head_norm(worker, HeadNormArgs{k, layer.k_norm, tokens, layer.kv_heads, layer.head_dim, width,
                                              weights_.epsilon});
        worker.barrier();
    }
    level_.rotary_write_kv(worker, RotaryArgs{a.qkv, k, v, width, width, width, weights_.cos_sin, weights_.rotary_dim,
                                              layout.positions, layout.slots, tokens, layer.heads, args.pool,
                                              (int64_t)index, a.queries});
    worker.barrier();
    level_.attend(worker, a.attention[index]);
    worker.barrier();
}

// From the normed residual stream to the next layer's.
void Decoder::feed_forward(Worker& worker, const Activations& a, const LayerWeights& layer, const float* next_norm,
                           int64_t rows) const {
    const int64_t hidden = weights_.hidden(), width = outputs(layer.gate_up) / 2;
    if (fuses(layer.gate_up)) {
        level_.matmul_silu(worker, MatmulSiluArgs{a.normed, layer.gate_up.front().weight, a.activated, a.scratch, rows,
                                                  hidden, width});
    } else {
        project(worker, layer.gate_up, a.normed, a.gate_up, a, rows, false);
        worker.barrier();
        level_.silu_multiply(worker, SiluArgs{a.gate_up, a.activated, rows, width});
    }
    worker.barrier();
    project(worker, layer.down, a.activated, a.residual, a, rows, true);
    worker.barrier();
    norm(worker, a, next_norm, rows);
}

void Decoder::norm(Worker& worker, const Activations& a, const float* weight, int64_t rows) const {
    const int64_t hidden = weights_.hidden();
    level_.add_rms_norm(worker, NormArgs{nullptr, a.residual, weight, a.normed, rows, hidden, hidden, hidden, hidden,
                                         weights_.epsilon});
    worker.barrier();
}

void Decoder::project(Worker& worker, const Projection& projection, const uint16_t* x, float* out, const Activations& a,
                      int64_t rows, bool accumulate) const {
    const int64_t width = outputs(projection);
    bool first = true;
    for (const Part& part : projection) {
        // The parts take turns with the scratch memory.
        if (!first) worker.barrier();
        first = false;
        level_.matmul(worker, MatmulArgs{x, part.weight, part.bias, out, a.scratch, rows, part.weight.inner, width,
                                         accumulate});
        out += part.weight.outputs;
    }
}

bool Decoder::fuses(const Projection& gate_up) const {
    return gate_up.size() == 1 && gate_up.front().bias == nullptr &&
           gate_up.front().weight.outputs % (2 * kPanel) == 0;
}

}  // namespace radixrt::cpu
