// The Python module radixrt.kernels.cpu._native.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "fused.hpp"
#include "level.hpp"
#include "threads.hpp"

namespace nb = nanobind;

namespace radixrt::cpu {

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

private:
    const Level* level_;
    ThreadPool pool_;
};

}  // namespace radixrt::cpu

NB_MODULE(_native, m) {
    using radixrt::cpu::Kernels;
    using Free = nb::call_guard<nb::gil_scoped_release>;
    m.def("levels", [] {
        std::vector<std::string> names;
        for (const auto* level : radixrt::cpu::levels()) names.emplace_back(level->name);
        return names;
    });
    nb::class_<Kernels>(m, "Kernels")
        .def(nb::init<int, const std::optional<std::string>&>(), nb::arg("threads"), nb::arg("level").none())
        .def_prop_ro("level", &Kernels::level)
        .def_prop_ro("threads", &Kernels::threads)
        .def("add_rms_norm", &Kernels::add_rms_norm, Free())
        .def("silu_multiply", &Kernels::silu_multiply, Free());
}
