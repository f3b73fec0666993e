// Vectors of LANES 32-bit lanes, in the compiler's own vector extension: one source for AVX-512, AVX2 and any other CPU.
//
// A lane holds one float, or a pair of neighbouring bfloat16 numbers. dot<T>() multiplies two vectors lane by lane and
// adds each lane's products to a float, so that code written in lanes serves both types.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512BF16__)
#include <immintrin.h>
#endif

#ifndef LANES
#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
#endif

using Lane = int32_t __attribute__((may_alias));
using Lanes = int32_t __attribute__((vector_size(4 * LANES)));
using Floats = float __attribute__((vector_size(4 * LANES)));
using Halves = uint16_t __attribute__((vector_size(2 * LANES)));

struct BFloat16 {
    uint16_t bits;
};

// Numbers of type T in one lane.
template <class T>
constexpr int WIDTH = sizeof(Lane) / sizeof(T);

inline Lanes load_lanes(const Lane* source) {
    Lanes lanes;
    std::memcpy(&lanes, source, sizeof lanes);
    return lanes;
}

inline Lanes broadcast(Lane lane) { return Lanes{} + lane; }

inline Floats splat(float number) {
    Lane bits;
    std::memcpy(&bits, &number, sizeof bits);
    return (Floats)broadcast(bits);
}

inline Floats maximum(Floats a, Floats b) { return a > b ? a : b; }

// 0, 1, 2, ... in the lanes.
inline Lanes lane_numbers() {
    Lanes numbers;
    for (int lane = 0; lane < LANES; ++lane) numbers[lane] = lane;
    return numbers;
}

template <class T>
Floats dot(Floats sum, Lanes a, Lanes b);

template <>
inline Floats dot<float>(Floats sum, Lanes a, Lanes b) {
    return (Floats)a * (Floats)b + sum;
}

template <>
inline Floats dot<BFloat16>(Floats sum, Lanes a, Lanes b) {
#if defined(__AVX512BF16__) && LANES == 16
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#elif defined(__AVX512BF16__) && defined(__AVX512VL__) && LANES == 8
    return (Floats)_mm256_dpbf16_ps((__m256)sum, (__m256bh)a, (__m256bh)b);
#else
    const Lanes high = broadcast(int32_t(0xFFFF0000u));
    sum = (Floats)(a << 16) * (Floats)(b << 16) + sum;
    return (Floats)(a & high) * (Floats)(b & high) + sum;
#endif
}

inline Floats load(const float* source) {
    Floats floats;
    std::memcpy(&floats, source, sizeof floats);
    return floats;
}

inline Floats load(const BFloat16* source) {
    Halves halves;
    std::memcpy(&halves, source, sizeof halves);
    return (Floats)(__builtin_convertvector(halves, Lanes) << 16);
}

inline void store(float* target, Floats floats) { std::memcpy(target, &floats, sizeof floats); }

// Rounds to nearest, ties to even; NaN stays NaN.
inline void store(BFloat16* target, Floats floats) {
    const Lanes bits = (Lanes)floats;
    const Lanes rounded = bits + 0x7FFF + ((bits >> 16) & 1);
    const Lanes quiet_nan = bits | 0x400000;
    const Lanes chosen = floats == floats ? rounded : quiet_nan;
    const Halves halves = __builtin_convertvector(chosen >> 16, Halves);
    std::memcpy(target, &halves, sizeof halves);
}

// The first `count` lanes only.
template <class T>
inline Floats load_some(const T* source, int count) {
    if (count == LANES) return load(source);
    T padded[LANES] = {};
    std::memcpy(padded, source, count * sizeof(T));
    return load(padded);
}

template <class T>
inline void store_some(T* target, Floats floats, int count) {
    if (count == LANES) return store(target, floats);
    T padded[LANES];
    store(padded, floats);
    std::memcpy(target, padded, count * sizeof(T));
}

template <class Operation>
inline float reduce(Floats floats, Operation operation) {
    float numbers[LANES];
    std::memcpy(numbers, &floats, sizeof numbers);
    for (int step = LANES / 2; step > 0; step /= 2) {
        for (int lane = 0; lane < step; ++lane) numbers[lane] = operation(numbers[lane], numbers[lane + step]);
    }
    return numbers[0];
}

inline float reduce_sum(Floats floats) {
    return reduce(floats, [](float a, float b) { return a + b; });
}

inline float reduce_maximum(Floats floats) {
    return reduce(floats, [](float a, float b) { return a > b ? a : b; });
}

// e to the power of x <= 0, to about 2 units in the last place; exactly 0 below -87, where results turn subnormal.
//
// 2^t with t = x log2 e is split into 2^whole, made from exponent bits, and 2^fraction, a polynomial on [-1/2, 1/2].
// Adding 1.5 * 2^23 rounds t to a whole number and leaves that in the low bits.
inline Floats exponential(Floats x) {
    const Floats rounder = splat(12582912.0f);
    const Floats t = maximum(x, splat(-87.0f)) * 1.44269504f;
    const Floats shifted = t + rounder;
    const Floats fraction = t - (shifted - rounder);
    Floats power = splat(1.54035304e-4f);
    power = power * fraction + 1.33335581e-3f;
    power = power * fraction + 9.61812911e-3f;
    power = power * fraction + 5.55041087e-2f;
    power = power * fraction + 2.40226507e-1f;
    power = power * fraction + 6.93147181e-1f;
    power = power * fraction + 1.0f;
    const Floats scale = (Floats)(((Lanes)shifted + 127) << 23);
    const Floats result = power * scale;
    return x < -87.0f ? Floats{} : (x == x ? result : x);
}

inline Floats hyperbolic_tangent(Floats x) {
    const Lanes sign = (Lanes)x & INT32_MIN;
    const Floats magnitude = (Floats)((Lanes)x & INT32_MAX);
    const Floats e = exponential(-2.0f * magnitude);
    return (Floats)((Lanes)((1.0f - e) / (1.0f + e)) | sign);
}

// silu(g) = g / (1 + exp(-g)), with the exponential of a negative number on both sides of zero.
inline Floats silu(Floats gate) {
    const Floats e = exponential((Floats)((Lanes)gate | INT32_MIN));
    return gate * (gate < 0.0f ? e : splat(1.0f)) / (1.0f + e);
}
