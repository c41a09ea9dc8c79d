// Packing weights into panels.
#pragma once

#include <string>

#include "matmul.hpp"
#include "threads.hpp"

namespace radixrt::cpu {

// The format named as in GGUF files ("Q4_0", ...) or "bfloat16". Throws std::invalid_argument for any other.
Format format_named(const std::string& name);

// A matrix as it lies in a file: rows of GGUF's blocks of 32, or of bfloat16 numbers.
struct PackArgs {
    const uint8_t* source;
    int64_t row_bytes;  // from row to row
    Packed packed;
    uint8_t* target;    // packed.data
};

// A phase: fills `target`, a pair of panels an item.
void pack(Worker& worker, const PackArgs& args);

}  // namespace radixrt::cpu
