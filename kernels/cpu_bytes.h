// Products of bytes and half-precision numbers, in vectors of LANES 32-bit lanes of four bytes each.
#pragma once

#include "cpu_vector.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// Sums of products of levels and inputs: each lane multiplies its four unsigned bytes by four signed ones, and adds up
// exactly over the 32 numbers of a group. A level goes through in PLANES<BITS> parts of so many bits; the sum of part i
// counts 16^i times.
#if (defined(__AVX512VNNI__) && LANES >= 8) || (defined(__AVXVNNI__) && LANES == 8)

template <int BITS>
constexpr int PLANES = 1;

struct Products {
    Lanes sums = {};

    void add(Lanes levels, Lanes inputs) {
#if LANES == 16
        sums = (Lanes)_mm512_dpbusd_epi32((__m512i)sums, (__m512i)levels, (__m512i)inputs);
#elif defined(__AVX512VNNI__)
        sums = (Lanes)_mm256_dpbusd_epi32((__m256i)sums, (__m256i)levels, (__m256i)inputs);
#else
        sums = (Lanes)_mm256_dpbusd_avx_epi32((__m256i)sums, (__m256i)levels, (__m256i)inputs);
#endif
    }
    Lanes total(int) const { return sums; }
};

#elif (defined(__AVX512BW__) && LANES == 16) || (defined(__AVX2__) && LANES == 8)

// Pairs of products are added in 16 bits, which hold a group's eight pairs of half bytes: 8 * 2 * 15 * 128 = 30720.
// The empty asm keeps the compiler from adding up in another order, for which it would need more registers than there are.
template <int BITS>
constexpr int PLANES = BITS / 4;

struct Products {
    Lanes pairs = {};

#if LANES == 16
    void add(Lanes levels, Lanes inputs) {
        pairs = (Lanes)_mm512_add_epi16((__m512i)pairs, _mm512_maddubs_epi16((__m512i)levels, (__m512i)inputs));
        asm("" : "+v"(pairs));
    }
    Lanes total(int plane) const { return (Lanes)_mm512_madd_epi16((__m512i)pairs, _mm512_set1_epi16(plane ? 16 : 1)); }
#else
    void add(Lanes levels, Lanes inputs) {
        pairs = (Lanes)_mm256_add_epi16((__m256i)pairs, _mm256_maddubs_epi16((__m256i)levels, (__m256i)inputs));
        asm("" : "+x"(pairs));
    }
    Lanes total(int plane) const { return (Lanes)_mm256_madd_epi16((__m256i)pairs, _mm256_set1_epi16(plane ? 16 : 1)); }
#endif
};

#else

template <int BITS>
constexpr int PLANES = 1;

struct Products {
    Lanes sums = {};

    void add(Lanes levels, Lanes inputs) {
        for (int byte = 0; byte < 4; ++byte)
            sums += ((levels >> (8 * byte)) & 0xFF) * ((inputs << (24 - 8 * byte)) >> 24);
    }
    Lanes total(int) const { return sums; }
};

#endif

// Finite half-precision numbers.
inline Floats load_halves(const uint16_t* source) {
#if defined(__AVX512F__) && LANES == 16
    return (Floats)_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(source)));
#elif defined(__F16C__) && LANES == 8
    return (Floats)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
#else
    Halves halves;
    std::memcpy(&halves, source, sizeof halves);
    const Lanes bits = __builtin_convertvector(halves, Lanes);
    // Exponent and fraction, moved to where a float has them; 2^112 makes up for the different bias of the exponents.
    const Floats magnitude = (Floats)((bits & 0x7FFF) << 13) * 5.192296858534828e33f;
    return (Floats)((Lanes)magnitude | ((bits & 0x8000) << 16));
#endif
}
