// A decoder, as Python puts it together and runs its steps.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <utility>
#include <vector>

#include "decoder.hpp"

namespace nb = nanobind;

namespace radixrt::cpu {

namespace {

const float* floats(uintptr_t address) { return (const float*)address; }

void make_layer(LayerWeights* self, uintptr_t attention_norm, Projection qkv, uintptr_t q_norm, uintptr_t k_norm,
                Projection output, uintptr_t mlp_norm, Projection gate_up, Projection down, int64_t heads,
                int64_t kv_heads, int64_t head_dim, float scale, int64_t window) {
    new (self) LayerWeights{floats(attention_norm), std::move(qkv),     floats(q_norm), floats(k_norm),
                            std::move(output),      floats(mlp_norm),   std::move(gate_up), std::move(down),
                            heads,                  kv_heads,           head_dim,       scale,
                            window};
}

void make_weights(DecoderWeights* self, const Packed& embedding, std::vector<LayerWeights> layers, uintptr_t final_norm,
                  const Packed& head, uintptr_t cos_sin, int64_t rotary_dim, float epsilon) {
    new (self) DecoderWeights{embedding,       std::move(layers), floats(final_norm), head,
                              floats(cos_sin), rotary_dim,        epsilon};
}

void step(Decoder& decoder, uintptr_t token_ids, Plan& plan, const KvPool& kv, uintptr_t logit_tokens,
          int64_t logit_count, uintptr_t logits) {
    decoder.step(StepArgs{(const int64_t*)token_ids, plan, kv, (const int64_t*)logit_tokens, logit_count,
                          (float*)logits});
}

}  // namespace

// Declared in module.cpp.
void bind_decoder(nb::module_& m);

void bind_decoder(nb::module_& m) {
    nb::class_<Part>(m, "Part").def("__init__", [](Part* self, const Packed& weight, uintptr_t bias) {
        new (self) Part{weight, floats(bias)};
    });
    nb::class_<LayerWeights>(m, "LayerWeights").def("__init__", make_layer);
    nb::class_<DecoderWeights>(m, "DecoderWeights").def("__init__", make_weights);
    nb::class_<Decoder>(m, "Decoder").def("step", step, nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace radixrt::cpu
