// Norms and activations: arguments of the phases.
#pragma once

#include <cstdint>

namespace radixrt::cpu {

// residual += x (unless x is null); out = bfloat16(residual / sqrt(mean(residual^2) + epsilon) * weight), by row.
struct NormArgs {
    const float* x;      // [rows, width], null: nothing is added
    float* residual;     // [rows, width]
    const float* weight; // [width]
    uint16_t* out;       // bfloat16 [rows, width]
    int64_t rows;
    int64_t width;
    int64_t x_stride;         // elements from row to row
    int64_t residual_stride;
    int64_t out_stride;
    float epsilon;
};

// Norms each head in place and rounds it to a bfloat16 number, kept in float32.
struct HeadNormArgs {
    float* x;             // [rows, heads, head_dim]
    const float* weight;  // [head_dim]
    int64_t rows;
    int64_t heads;
    int64_t head_dim;
    int64_t stride;  // elements from row to row
    float epsilon;
};

// out = bfloat16(gate / (1 + exp(-gate)) * up)
struct SiluArgs {
    const float* gate_up;  // [rows, 2 * width], gate first
    uint16_t* out;         // bfloat16 [rows, width]
    int64_t rows;
    int64_t width;
};

}  // namespace radixrt::cpu
