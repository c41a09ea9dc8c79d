// Matrix products with packed weights: arguments of the phases.
#pragma once

#include <cstdint>

namespace radixrt::cpu {

enum class Format : int32_t { bfloat16, q4_0, q4_1, q8_0 };

// A packed weight. Panels of 16 outputs follow one another; see weights.cpp for what a panel holds.
struct Packed {
    const uint8_t* data;
    Format format;
    int64_t outputs;
    int64_t inner;
};

// out = x @ weight.T + bias
struct MatmulArgs {
    const uint16_t* x;  // bfloat16 [rows, inner]
    Packed weight;
    const float* bias;  // [outputs] or null
    float* out;         // float32 [rows, outputs]
    int64_t rows;
    int64_t x_stride;   // elements from row to row
    int64_t out_stride;
};

// out = rows of a packed matrix
struct EmbedArgs {
    const int64_t* ids;  // [rows]
    Packed table;
    float* out;          // float32 [rows, table.inner]
    int64_t rows;
};

}  // namespace radixrt::cpu
