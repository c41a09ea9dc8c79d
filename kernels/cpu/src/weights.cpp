#include "weights.hpp"

#include <cstring>
#include <stdexcept>

namespace radixrt::cpu {

namespace {

template <typename Word>
Word load_word(const uint8_t* p) {
    Word word;
    std::memcpy(&word, p, sizeof word);
    return word;
}

// The low nibbles of eight bytes as 32 bits: those of the even bytes in the lower half, each half in order.
uint32_t gather_nibbles(uint64_t bytes) {
    uint64_t even = bytes & 0x000F000F000F000F, odd = bytes >> 8 & 0x000F000F000F000F;
    even = (even | even >> 12) & 0x000000FF000000FF;
    odd = (odd | odd >> 12) & 0x000000FF000000FF;
    return (uint32_t)((even | even >> 24) & 0xFFFF) | (uint32_t)((odd | odd >> 24) & 0xFFFF) << 16;
}

// GGUF's Q4_0 and Q4_1: float16 scale (and minimum), then 16 bytes whose low nibbles are the elements 0 ... 15 and
// whose high ones 16 ... 31.
void pack_nibbles(const uint8_t* block, uint8_t* target, int64_t lane, int scales) {
    const uint8_t* bytes = block + 2 * scales;
    for (int piece = 0; piece < 4; ++piece) {
        uint64_t eight = load_word<uint64_t>(bytes + 8 * (piece % 2)) >> 4 * (piece / 2);
        uint32_t words = gather_nibbles(eight);
        std::memcpy(target + 64 * piece + 4 * lane, &words, sizeof words);
    }
    for (int scale = 0; scale < scales; ++scale) std::memcpy(target + 256 + 32 * scale + 2 * lane, block + 2 * scale, 2);
}

// GGUF's Q8_0: float16 scale, then 32 signed bytes.
void pack_bytes(const uint8_t* block, uint8_t* target, int64_t lane) {
    for (int pair = 0; pair < 16; ++pair) std::memcpy(target + 32 * pair + 2 * lane, block + 2 + 2 * pair, 2);
    std::memcpy(target + 512 + 2 * lane, block, 2);
}

void pack_bfloat16(const uint8_t* block, uint8_t* target, int64_t lane, int64_t count) {
    uint8_t numbers[2 * kBlock] = {};
    std::memcpy(numbers, block, 2 * count);
    for (int pair = 0; pair < 16; ++pair) std::memcpy(target + 64 * pair + 4 * lane, numbers + 4 * pair, 4);
}

void pack_row(const PackArgs& args, int64_t output) {
    const Packed& packed = args.packed;
    const uint8_t* source = args.source + output * args.row_bytes;
    uint8_t* target = args.target + output / kPanel * packed.panel_bytes();
    int64_t lane = output % kPanel, step = block_bytes(packed.format);
    for (int64_t block = 0; block < packed.blocks(); ++block, target += step) {
        switch (packed.format) {
            case Format::q4_0: pack_nibbles(source + 18 * block, target, lane, 1); break;
            case Format::q4_1: pack_nibbles(source + 20 * block, target, lane, 2); break;
            case Format::q8_0: pack_bytes(source + 34 * block, target, lane); break;
            case Format::bfloat16: {
                int64_t left = packed.inner - kBlock * block;
                pack_bfloat16(source + 2 * kBlock * block, target, lane, left < kBlock ? left : kBlock);
            }
        }
    }
}

}  // namespace

Format format_named(const std::string& name) {
    if (name == "bfloat16") return Format::bfloat16;
    if (name == "Q4_0") return Format::q4_0;
    if (name == "Q4_1") return Format::q4_1;
    if (name == "Q8_0") return Format::q8_0;
    throw std::invalid_argument("no packed form for the format " + name);
}

void pack(Worker& worker, const PackArgs& args) {
    const Packed& packed = args.packed;
    for (Chunk pairs = worker.first(packed.panels() / 2, 4); pairs; pairs = worker.next())
        for (int64_t pair = pairs.begin; pair < pairs.end; ++pair) {
            int64_t first = 2 * kPanel * pair, last = first + 2 * kPanel;
            // Scales of zero make a row of zeros whatever its numbers are.
            if (last > packed.outputs) {
                std::memset(args.target + 2 * pair * packed.panel_bytes(), 0, 2 * packed.panel_bytes());
                last = packed.outputs;
            }
            for (int64_t output = first; output < last; ++output) pack_row(args, output);
        }
}

}  // namespace radixrt::cpu
