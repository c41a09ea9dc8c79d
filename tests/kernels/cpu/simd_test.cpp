// The sixteen-lane operations of one level against plain computations. Compiled once for each level.
#if defined(RADIXRT_LEVEL_AVX512) || defined(RADIXRT_LEVEL_AVX2)
#include <immintrin.h>
#endif

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "check.hpp"

namespace level {
#include "simd.hpp"
}
using namespace level;

static constexpr float kInfinity = std::numeric_limits<float>::infinity();
static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
static std::mt19937 random_bits(11);

static uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
static float float_of(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
static float of_bf16(uint16_t x) { return float_of((uint32_t)x << 16); }
// Equal as numbers (zeros of either sign are), or both not numbers.
static bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }
static float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(random_bits); }

struct Lanes {
    float of[16];
    explicit Lanes(f32x16 x) { store(of, x); }
    Lanes(float low, float high) {
        for (float& x : of) x = uniform(low, high);
    }
    float operator[](int i) const { return of[i]; }
};

template <class Test>
static void for_random_lanes(float low, float high, Test test) {
    for (int round = 0; round < 200; ++round) test(Lanes(low, high), Lanes(low, high), Lanes(low, high));
    // Special values, each against each.
    const float special[] = {0.0f, -0.0f, 1.0f, -1.0f, 1e30f, -1e30f, 1.1754944e-38f, kInfinity, -kInfinity, kNan};
    for (float x : special)
        for (float y : special) {
            Lanes a(low, high), b(low, high);
            a.of[3] = a.of[12] = x;
            b.of[3] = b.of[12] = y;
            test(a, b, Lanes(low, high));
        }
}

static void arithmetic() {
    for_random_lanes(-100, 100, [](const Lanes& a, const Lanes& b, const Lanes& c) {
        f32x16 x = load(a.of), y = load(b.of), z = load(c.of);
        Lanes plus(x + y), minus(x - y), times(x * y), over(x / y), fused(fma(x, y, z)), more(max(x, y)), less(min(x, y));
        for (int i = 0; i < 16; ++i) {
            CHECK(same(plus[i], a[i] + b[i]));
            CHECK(same(minus[i], a[i] - b[i]));
            CHECK(same(times[i], a[i] * b[i]));
            CHECK(same(over[i], a[i] / b[i]));
            // Where there is no fused multiply-add, the product is rounded too.
            CHECK(same(fused[i], std::fma(a[i], b[i], c[i])) || same(fused[i], a[i] * b[i] + c[i]));
            CHECK(same(more[i], a[i] > b[i] ? a[i] : b[i]));
            CHECK(same(less[i], a[i] < b[i] ? a[i] : b[i]));
        }
    });
    for (float value : Lanes(zero()).of) CHECK(value == 0);
    for (float value : Lanes(splat(1.5f)).of) CHECK(value == 1.5f);
}

static void rounding_and_powers() {
    for (int round_number = 0; round_number < 500; ++round_number) {
        Lanes a(-1000, 1000), n(-160, 120);
        for (int i = 0; i < 16; i += 3) a.of[i] = std::floor(a[i]) + 0.5f;  // ties
        Lanes rounded(round(load(a.of)));
        for (float& x : n.of) x = std::nearbyint(x);
        Lanes scaled(scale_by_power(load(a.of), load(n.of)));
        for (int i = 0; i < 16; ++i) {
            CHECK(rounded[i] == std::nearbyint(a[i]));
            CHECK(scaled[i] == std::ldexp(a[i], (int)n[i]));
        }
    }
    Lanes far(scale_by_power(splat(1.5f), first_lanes(8, splat(-400.0f), splat(127.0f))));
    CHECK(far[0] == 0 && far[15] == 1.5f * 0x1p127f);
}

static void exponentials() {
    for (float at = -120; at < 88.5f; at += 0.01f) {
        Lanes a(at, at + 0.01f), e(exp(load(a.of)));
        for (int i = 0; i < 16; ++i) {
            double exact = std::exp((double)std::min(a[i], 88.3762626647949f));
            // One and a half units in the last place; of the smallest numbers there are, for what is below the normal.
            CHECK(std::abs(e[i] - exact) <= std::max(1.8e-7 * exact, 1.5e-45));
        }
    }
    CHECK(Lanes(exp(splat(-kInfinity)))[7] == 0);
    CHECK(Lanes(exp(splat(0.0f)))[0] == 1);
    CHECK(std::isfinite(Lanes(exp(splat(kInfinity)))[0]));
}

static void reductions() {
    for (int round_number = 0; round_number < 500; ++round_number) {
        Lanes a(-1, 1);
        float sums[16], most = a[0];
        std::memcpy(sums, a.of, sizeof sums);
        for (int width = 8; width > 0; width /= 2)
            for (int i = 0; i < width; ++i) sums[i] += sums[i + width];
        for (float x : a.of) most = std::max(most, x);
        CHECK(sum(load(a.of)) == sums[0]);
        CHECK(greatest(load(a.of)) == most);
    }
    CHECK(sum(splat(kInfinity)) == kInfinity);
    CHECK(greatest(splat(-kInfinity)) == -kInfinity);
    Lanes a(0, 1), b(2, 3);
    for (int count = 0; count <= 16; ++count) {
        Lanes mixed(first_lanes(count, load(a.of), load(b.of)));
        for (int i = 0; i < 16; ++i) CHECK(mixed[i] == (i < count ? a[i] : b[i]));
    }
}

static float of_f16(uint16_t x) {
    int exponent = x >> 10 & 31, fraction = x & 1023;
    float size = exponent == 31 ? (fraction ? kNan : kInfinity)
                 : exponent     ? std::ldexp(1.0f + fraction / 1024.0f, exponent - 15)
                                : std::ldexp((float)fraction, -24);
    return x & 0x8000 ? -size : size;
}

static uint16_t rounded_to_bf16(float x) {
    uint32_t bits = bits_of(x), below = bits & 0xFFFF;
    bool up = below > 0x8000 || (below == 0x8000 && bits >> 16 & 1);
    return (uint16_t)((bits >> 16) + up);
}

static void sixteen_bit_floats() {
    for (uint32_t first = 0; first < 65536; first += 16) {
        uint16_t words[16];
        for (int i = 0; i < 16; ++i) words[i] = (uint16_t)(first + i);
        Lanes halves(load_f16(words)), brains(load_bf16(words));
        for (int i = 0; i < 16; ++i) {
            CHECK(same(halves[i], of_f16(words[i])));
            CHECK(same(brains[i], of_bf16(words[i])));
        }
    }
    for (int round_number = 0; round_number < 20000; ++round_number) {
        float numbers[16];
        uint16_t stored[16];
        for (float& x : numbers) {
            uint32_t bits = (uint32_t)random_bits();
            if (round_number % 2) bits = (bits & 0xFFFF0000) | 0x8000;  // ties
            x = float_of(bits);
        }
        store_bf16(stored, load(numbers));
        for (int i = 0; i < 16; ++i) {
            if (std::isnan(numbers[i])) {
                CHECK(std::isnan(of_bf16(stored[i])));
            } else if (std::fpclassify(numbers[i]) == FP_SUBNORMAL) {
                CHECK(of_bf16(stored[i]) == 0 || stored[i] == rounded_to_bf16(numbers[i]));  // AVX-512 makes it zero
            } else {
                CHECK(stored[i] == rounded_to_bf16(numbers[i]));
            }
        }
    }
}

// What lanes a pair operand has, made visible by products with (1, 0) and (0, 1).
static void pairs_are(Pairs pairs, const float* low, const float* high) {
    const uint16_t first[2] = {0x3F80, 0}, second[2] = {0, 0x3F80};
    Lanes lows(dot(zero(), pairs, splat_pair(first))), highs(dot(zero(), pairs, splat_pair(second)));
    for (int i = 0; i < 16; ++i) {
        CHECK(lows[i] == low[i]);
        CHECK(highs[i] == high[i]);
    }
}

static void pairs() {
    for (int round_number = 0; round_number < 500; ++round_number) {
        uint16_t a[32], b[32];
        float low[16], high[16];
        for (int i = 0; i < 32; ++i) {
            a[i] = rounded_to_bf16(uniform(-2, 2));
            b[i] = rounded_to_bf16(uniform(-2, 2));
            float* half = i % 2 ? high : low;
            half[i / 2] = of_bf16(a[i]);
        }
        pairs_are(load_pairs(a), low, high);
        Lanes start(-4, 4), products(dot(load(start.of), load_pairs(a), load_pairs(b)));
        for (int i = 0; i < 16; ++i) {
            double exact = start[i] + (double)of_bf16(a[2 * i]) * of_bf16(b[2 * i]) +
                           (double)of_bf16(a[2 * i + 1]) * of_bf16(b[2 * i + 1]);
            CHECK(std::abs(products[i] - exact) < 3e-6);
        }
        Lanes splat_products(dot(zero(), splat_pair(a), splat_pair(b)));
        for (float x : splat_products.of) CHECK(x == splat_products[0]);
    }
}

template <int n>
static void nibbles_of_pair(const uint8_t* bytes) {
    float low[16], high[16];
    for (int i = 0; i < 16; ++i) {
        uint16_t words[2];
        std::memcpy(words, bytes + 4 * i, sizeof words);
        low[i] = (float)(words[0] >> (4 * n) & 15);
        high[i] = (float)(words[1] >> (4 * n) & 15);
    }
    pairs_are(pair_of<n>(load_nibbles(bytes)), low, high);
}

static void packed_numbers() {
    for (int round_number = 0; round_number < 500; ++round_number) {
        uint8_t bytes[64];
        for (uint8_t& x : bytes) x = (uint8_t)random_bits();
        nibbles_of_pair<0>(bytes);
        nibbles_of_pair<1>(bytes);
        nibbles_of_pair<2>(bytes);
        nibbles_of_pair<3>(bytes);
        int8_t codes[32];
        float low[16], high[16];
        for (int i = 0; i < 32; ++i) {
            codes[i] = (int8_t)(round_number < 8 ? round_number * 32 + i - 128 : random_bits());
            float* half = i % 2 ? high : low;
            half[i / 2] = codes[i];
        }
        pairs_are(int8_pairs(codes), low, high);
    }
}

// Four unsigned numbers of each lane times four signed ones.
static int32_t products(const uint8_t* a, const int8_t* b) {
    int32_t total = 0;
    for (int i = 0; i < 4; ++i) total += a[i] * b[i];
    return total;
}

static void eight_bit_products() {
    for (int round_number = 0; round_number < 500; ++round_number) {
        uint8_t bytes[64], low[64], high[64], raised[64];
        int8_t codes[4];
        // Also the extremes, whose sums of two do not fit in sixteen bits.
        for (uint8_t& x : bytes) x = round_number % 4 == 0 ? 0x7F : (uint8_t)random_bits();
        for (int8_t& x : codes) x = round_number % 4 < 2 ? (int8_t)(round_number % 8 < 4 ? 127 : -128) : (int8_t)random_bits();
        for (int i = 0; i < 64; ++i) {
            low[i] = bytes[i] & 15;
            high[i] = bytes[i] >> 4;
            raised[i] = bytes[i % 4 / 2 * 32 + i / 4 * 2 + i % 2] ^ 0x80;
        }
        i32x16 start = splat_int(-1000);
        Quads quad = splat_quad(codes);
        Lanes lows(to_float(dot_nibbles(start, low_nibbles(bytes), quad)));
        Lanes highs(to_float(dot_nibbles(start, high_nibbles(bytes), quad)));
        Lanes wholes(to_float(dot_bytes(start, raised_quads(bytes), quad)));
        for (int i = 0; i < 16; ++i) {
            CHECK(lows[i] == (float)(products(low + 4 * i, codes) - 1000));
            CHECK(highs[i] == (float)(products(high + 4 * i, codes) - 1000));
            CHECK(wholes[i] == (float)(products(raised + 4 * i, codes) - 1000));
        }
    }
    const int order[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    for (int first = -128; first < 128; first += 16) {
        float numbers[16];
        int8_t straight[16], mixed[16];
        for (int i = 0; i < 16; ++i) numbers[i] = (float)(first + i);
        store_int8<Order::straight>(straight, load(numbers));
        store_int8<Order::nibbles>(mixed, load(numbers));
        for (int i = 0; i < 16; ++i) {
            CHECK(straight[i] == first + i);
            CHECK(mixed[i] == first + i / 8 * 8 + order[i % 8]);
        }
    }
}

int main() {
    arithmetic();
    rounding_and_powers();
    exponentials();
    reductions();
    sixteen_bit_floats();
    pairs();
    packed_numbers();
    eight_bit_products();
    return failures > 0;
}
