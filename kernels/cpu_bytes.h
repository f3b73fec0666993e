// Products of bytes and half-precision numbers, in vectors of LANES 32-bit lanes of four bytes each.
#pragma once

#include "cpu_vector.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

// Each lane of sum + the products of its four unsigned bytes in a and its four signed bytes in b, exactly.
// BITS says how large the bytes of a are at most, 4 or 8 bits.
template <int BITS>
inline Lanes dot_bytes(Lanes sum, Lanes a, Lanes b) {
#if defined(__AVX512VNNI__) && LANES == 16
    return (Lanes)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(__AVX512VNNI__) && defined(__AVX512VL__) && LANES == 8
    return (Lanes)_mm256_dpbusd_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#elif defined(__AVXVNNI__) && LANES == 8
    return (Lanes)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#elif defined(__AVX512BW__) && LANES == 16
    const __m512i ones = _mm512_set1_epi16(1), x = (__m512i)a, y = (__m512i)b;
    if constexpr (BITS == 4) return sum + (Lanes)_mm512_madd_epi16(_mm512_maddubs_epi16(x, y), ones);
    // Two products of full bytes can exceed 16 bits: even and odd bytes are multiplied apart.
    const __m512i even = _mm512_madd_epi16(_mm512_and_si512(x, _mm512_set1_epi16(0xFF)),
                                           _mm512_srai_epi16(_mm512_slli_epi16(y, 8), 8));
    const __m512i odd = _mm512_madd_epi16(_mm512_srli_epi16(x, 8), _mm512_srai_epi16(y, 8));
    return sum + (Lanes)even + (Lanes)odd;
#elif defined(__AVX2__) && LANES == 8
    const __m256i ones = _mm256_set1_epi16(1), x = (__m256i)a, y = (__m256i)b;
    if constexpr (BITS == 4) return sum + (Lanes)_mm256_madd_epi16(_mm256_maddubs_epi16(x, y), ones);
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0xFF)),
                                           _mm256_srai_epi16(_mm256_slli_epi16(y, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(x, 8), _mm256_srai_epi16(y, 8));
    return sum + (Lanes)even + (Lanes)odd;
#else
    for (int byte = 0; byte < 4; ++byte) sum += ((a >> (8 * byte)) & 0xFF) * ((b << (24 - 8 * byte)) >> 24);
    return sum;
#endif
}

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
