// The Python module radixrt.kernels.cpu._native.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "attention.hpp"
#include "decoder.hpp"
#include "fused.hpp"
#include "kv_pool.hpp"
#include "level.hpp"
#include "matmul.hpp"
#include "plan.hpp"
#include "sampling.hpp"
#include "threads.hpp"
#include "weights.hpp"

namespace nb = nanobind;

namespace radixrt::cpu {

void bind_attention(nb::module_& m);  // bind_attention.cpp
void bind_decoder(nb::module_& m);    // bind_decoder.cpp

// A level and the threads that run it. Tensors come as addresses with their shapes and strides in elements: the Python
// side has checked them. Every call lets other Python threads run.
class Kernels {
public:
    Kernels(int threads, const std::optional<std::string>& name)
        : level_(find_level(name ? name->c_str() : nullptr)), pool_(threads) {
        if (!level_) throw std::invalid_argument("this processor does not run the level " + *name);
    }

    const char* level() const { return level_->name; }
    int threads() const { return pool_.size(); }

    void add_rms_norm(uintptr_t x, uintptr_t residual, uintptr_t weight, uintptr_t out, int64_t rows, int64_t width,
                      int64_t x_stride, int64_t residual_stride, int64_t out_stride, float epsilon) {
        const NormArgs args{(const float*)x, (float*)residual,   (const float*)weight, (uint16_t*)out, rows, width,
                            x_stride,        residual_stride, out_stride,          epsilon};
        pool_.run([&](Worker& worker) { level_->add_rms_norm(worker, args); });
    }

    void silu_multiply(uintptr_t gate_up, uintptr_t out, int64_t rows, int64_t width) {
        const SiluArgs args{(const float*)gate_up, (uint16_t*)out, rows, width};
        pool_.run([&](Worker& worker) { level_->silu_multiply(worker, args); });
    }

    void pack(uintptr_t source, int64_t row_bytes, const Packed& packed) {
        const PackArgs args{(const uint8_t*)source, row_bytes, packed, (uint8_t*)packed.data};
        pool_.run([&](Worker& worker) { radixrt::cpu::pack(worker, args); });
    }

    void matmul(uintptr_t x, const Packed& weight, uintptr_t bias, uintptr_t out, int64_t rows, int64_t x_stride,
                int64_t out_stride, bool accumulate) {
        Scratch scratch = scratch_of(weight, rows);
        const MatmulArgs args{(const uint16_t*)x, weight, (const float*)bias, (float*)out, scratch.get(),
                              rows,               x_stride, out_stride, accumulate};
        pool_.run([&](Worker& worker) { level_->matmul(worker, args); });
    }

    void matmul_silu(uintptr_t x, const Packed& weight, uintptr_t out, int64_t rows, int64_t x_stride,
                     int64_t out_stride) {
        if (weight.outputs % (2 * kPanel)) throw std::invalid_argument("the width is no multiple of a panel");
        Scratch scratch = scratch_of(weight, rows);
        const MatmulSiluArgs args{(const uint16_t*)x, weight, (uint16_t*)out, scratch.get(), rows, x_stride, out_stride};
        pool_.run([&](Worker& worker) { level_->matmul_silu(worker, args); });
    }

    void embed(uintptr_t ids, const Packed& table, uintptr_t out, int64_t rows) {
        const EmbedArgs args{(const int64_t*)ids, table, (float*)out, rows};
        for (int64_t row = 0; row < rows; ++row)
            if (args.ids[row] < 0 || args.ids[row] >= table.outputs) throw std::out_of_range("no such row to embed");
        pool_.run([&](Worker& worker) { level_->embed(worker, args); });
    }

    // int64 [count, 3]: source page, target page, slots
    void copy_slots(const KvPool& kv, uintptr_t copies, int64_t count) {
        pool_.run([&](Worker& worker) { radixrt::cpu::copy_slots(worker, kv, (const SlotCopy*)copies, count); });
    }

    void rotary_write_kv(uintptr_t q, uintptr_t k, uintptr_t v, int64_t q_stride, int64_t k_stride, int64_t v_stride,
                         uintptr_t cos_sin, int64_t rotary_dim, const Plan& plan, int64_t heads, const KvPool& kv,
                         int64_t layer, uintptr_t out) {
        const RotaryArgs args{(const float*)q,       (const float*)k,  (const float*)v,    q_stride,
                              k_stride,              v_stride,         (const float*)cos_sin, rotary_dim,
                              plan.layout.positions, plan.layout.slots, plan.layout.tokens, heads,
                              kv,                    layer,            (uint16_t*)out};
        pool_.run([&](Worker& worker) { level_->rotary_write_kv(worker, args); });
    }

    void attend(uintptr_t q, uintptr_t out, bool out_bfloat16, int64_t heads, float scale, int64_t window,
                const KvPool& kv, int64_t layer, Plan& plan) {
        AttentionArgs args{(const uint16_t*)q, (void*)out, out_bfloat16, heads, scale, kv, layer, {}, nullptr, nullptr};
        args.work = plan.attention(heads, kv.kv_heads, window);
        scratch_.lend(args, pool_.size());
        pool_.run([&](Worker& worker) { level_->attend(worker, args); });
    }

    std::unique_ptr<Decoder> decoder(const DecoderWeights& weights) {
        return std::make_unique<Decoder>(*level_, pool_, weights);
    }

    void probe_dots(int64_t count) {
        pool_.run([&](Worker& worker) { level_->probe_dots(worker, count); });
    }

    void probe_read(uintptr_t data, int64_t bytes) {
        pool_.run([&](Worker& worker) { level_->probe_read(worker, (const uint8_t*)data, bytes); });
    }

    void sample(uintptr_t logits, int64_t rows, int64_t vocabulary, int64_t width, int64_t stride, uintptr_t specs,
                uintptr_t ids, uintptr_t biases, uintptr_t masks, int64_t mask_words, uintptr_t tokens, uintptr_t chosen,
                uintptr_t best, uintptr_t best_logprobs, int64_t best_width) {
        std::lock_guard one_at_a_time(sampling_);
        const SampleArgs args{(const float*)logits,
                              rows,
                              vocabulary,
                              width,
                              stride,
                              (const SampleRow*)specs,
                              (const int32_t*)ids,
                              (const double*)biases,
                              (const int32_t*)masks,
                              mask_words,
                              (int32_t*)tokens,
                              (double*)chosen,
                              (int32_t*)best,
                              (double*)best_logprobs,
                              best_width,
                              sample_memory_.workers(pool_.size(), vocabulary)};
        pool_for(rows).run([&](Worker& worker) { level_->sample(worker, args); });
    }

    void score(uintptr_t logits, int64_t rows, int64_t vocabulary, int64_t stride, uintptr_t targets, uintptr_t out) {
        const ScoreArgs args{(const float*)logits, rows, vocabulary, stride, (const int32_t*)targets, (double*)out};
        pool_for(rows).run([&](Worker& worker) { level_->score(worker, args); });
    }

private:
    using Scratch = std::unique_ptr<uint8_t[]>;
    static Scratch scratch_of(const Packed& weight, int64_t rows) {
        return std::make_unique_for_overwrite<uint8_t[]>(scratch_bytes(weight, rows));
    }

    // One item is not worth waking anybody: that takes longer.
    ThreadPool& pool_for(int64_t items) { return items > 1 ? pool_ : alone_; }

    const Level* level_;
    ThreadPool pool_;
    AttentionScratch scratch_;
    ThreadPool alone_{1};
    std::mutex sampling_;
    SampleMemory sample_memory_;
};

}  // namespace radixrt::cpu

NB_MODULE(_native, m) {
    using radixrt::cpu::Kernels;
    using radixrt::cpu::Packed;
    using Free = nb::call_guard<nb::gil_scoped_release>;
    m.def("levels", [] {
        std::vector<std::string> names;
        for (const auto* level : radixrt::cpu::levels()) names.emplace_back(level->name);
        return names;
    });
    nb::class_<Packed>(m, "Packed")
        .def("__init__",
             [](Packed* self, uintptr_t data, const std::string& format, int64_t outputs, int64_t inner,
                bool int8_activations) {
                 new (self) Packed{(const uint8_t*)data, radixrt::cpu::format_named(format), outputs, inner,
                                   int8_activations};
             })
        .def_prop_ro("bytes", &Packed::bytes);
    nb::class_<Kernels>(m, "Kernels")
        .def(nb::init<int, const std::optional<std::string>&>(), nb::arg("threads"), nb::arg("level").none())
        .def_prop_ro("level", &Kernels::level)
        .def_prop_ro("threads", &Kernels::threads)
        .def("add_rms_norm", &Kernels::add_rms_norm, Free())
        .def("silu_multiply", &Kernels::silu_multiply, Free())
        .def("pack", &Kernels::pack, Free())
        .def("matmul", &Kernels::matmul, Free())
        .def("matmul_silu", &Kernels::matmul_silu, Free())
        .def("embed", &Kernels::embed, Free())
        .def("probe_dots", &Kernels::probe_dots, Free())
        .def("probe_read", &Kernels::probe_read, Free())
        .def("copy_slots", &Kernels::copy_slots, Free())
        .def("rotary_write_kv", &Kernels::rotary_write_kv, Free())
        .def("attend", &Kernels::attend, Free())
        .def("sample", &Kernels::sample, Free())
        .def("score", &Kernels::score, Free())
        // A decoder runs on the kernels' threads, and so keeps them.
        .def("decoder", &Kernels::decoder, nb::keep_alive<0, 1>());
    radixrt::cpu::bind_attention(m);
    radixrt::cpu::bind_decoder(m);
}
