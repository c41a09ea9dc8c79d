// Matrix products with packed weights: the packed form, and the arguments of the phases.
#pragma once

#include <cstdint>

namespace radixrt::cpu {

// How the numbers of a packed weight are held. A panel is 16 outputs over the whole inner size, in blocks of 32:
//
//   q4_0, q4_1   4 x 64 bytes of 4-bit numbers: nibble n of the 16-bit word 2i + h of piece p is element 8p + 2n + h of
//                output i; then 16 float16 scales, and for q4_1 16 float16 minima
//   q8_0         16 x 32 signed bytes: byte 2i + h of piece p is element 2p + h of output i; then 16 float16 scales
//   bfloat16     16 x 64 bytes: number 2i + h of piece p is element 2p + h of output i
//
// Panels follow one another, an even number of them; rows and elements past the matrix are zeros.
enum class Format : int32_t { bfloat16, q4_0, q4_1, q8_0 };

constexpr int64_t kPanel = 16;  // outputs
constexpr int64_t kBlock = 32;  // elements of the inner dimension

constexpr int64_t block_bytes(Format format) {
    switch (format) {
        case Format::q4_0: return 256 + 32;
        case Format::q4_1: return 256 + 64;
        case Format::q8_0: return 512 + 32;
        case Format::bfloat16: break;
    }
    return 1024;
}

struct Packed {
    const uint8_t* data;  // 64-byte aligned
    Format format;
    int64_t outputs;
    int64_t inner;
    bool int8_activations;  // what is multiplied with it is rounded to 8 bits first; not with bfloat16

    bool codes_activations() const { return int8_activations && format != Format::bfloat16; }
    int64_t blocks() const { return (inner + kBlock - 1) / kBlock; }
    int64_t panels() const { return (outputs + 2 * kPanel - 1) / (2 * kPanel) * 2; }
    int64_t panel_bytes() const { return blocks() * block_bytes(format); }
    int64_t bytes() const { return panels() * panel_bytes(); }
};

// A block of a row of activations in 8 bits.
struct CodedBlock {
    int8_t codes[kBlock];
    float scale;
    float sum;      // of what the codes stand for, scale and all
    int32_t start;  // what a block's sum begins at, since the weights' numbers are taken as unsigned
};

// out = x @ weight.T + bias, or out += that.
struct MatmulArgs {
    const uint16_t* x;  // bfloat16 [rows, inner]
    Packed weight;
    const float* bias;  // [outputs] or null
    float* out;         // float32 [rows, outputs]
    uint8_t* scratch;   // see `scratch_bytes`
    int64_t rows;
    int64_t x_stride;   // elements from row to row
    int64_t out_stride;
    bool accumulate;    // add to what `out` holds
};

// out = bfloat16(silu(gate) * up), where gate and up are the halves of x @ weight.T: the same bits as `matmul` and then
// `silu_multiply` yield. weight.outputs is 2 * width, and width a multiple of kPanel.
struct MatmulSiluArgs {
    const uint16_t* x;  // bfloat16 [rows, inner]
    Packed weight;
    uint16_t* out;      // bfloat16 [rows, width]
    uint8_t* scratch;   // see `scratch_bytes`
    int64_t rows;
    int64_t x_stride;   // elements from row to row
    int64_t out_stride;
};

// The scratch memory of a product of `rows` rows, 4-byte aligned: x in 8 bits with its scales, or of each row the sum of
// each block of x, for q4_1's minima.
inline int64_t scratch_bytes(const Packed& weight, int64_t rows) {
    if (weight.codes_activations()) return rows * weight.blocks() * (int64_t)sizeof(CodedBlock);
    return weight.format == Format::q4_1 ? rows * weight.blocks() * (int64_t)sizeof(float) : 0;
}

// out = rows of a packed matrix
struct EmbedArgs {
    const int64_t* ids;  // [rows], each below table.outputs
    Packed table;
    float* out;          // float32 [rows, table.inner]
    int64_t rows;
};

}  // namespace radixrt::cpu
