// Linear layers with 4-bit and 8-bit weights on the CPU.
//
// Inputs are cut into groups of 32. A weight is stored as levels u, with a scale s (and at 4 bits a minimum m) for each
// output and group: w = u s + m at 4 bits, w = (u - 128) s at 8 bits. A row of inputs is rounded on the fly to signed
// bytes a with one scale d for each group. So a group adds d (s sum(u a) + m sum(a)) to an output: the sums over bytes
// are exact integers, and only the sum over groups is rounded, always in the same order, whatever other rows are
// computed along. A row's result thus does not depend on its neighbours or on the number of threads.
//
// Outputs are computed in tiles of 16. The levels of a tile lie group by group, four inputs of each of the 16 outputs
// side by side (64 bytes); at 4 bits the high halves of the bytes hold the four inputs that follow.
#include "cpu_bytes.h"

#include <algorithm>
#include <vector>

struct LinearCall {
    const void* x;            // [num_rows, num_inputs]
    const float* bias;        // [num_outputs]; null: none
    const void* residual;     // [num_rows, num_outputs], added to the result; null: none
    void* output;             // [num_rows, num_outputs], or half as many columns if gated
    const uint8_t* levels;    // [num_tiles, num_groups, 64 * bits]
    const uint16_t* scales;   // [num_tiles, num_groups, 16]
    const uint16_t* minima;   // the same; null at 8 bits
    int64_t num_rows;
    int64_t num_inputs;
    int64_t num_outputs;
    int32_t bits;
    int32_t is_gated;         // the first half of the outputs are gates g, the second values v: store silu(g) v
    int32_t num_threads;
};

namespace {

constexpr int GROUP = 32;
constexpr int TILE = 16;
constexpr int ZERO = 128;  // level of 0 at 8 bits
// Sums of MAX_BLOCK rows stay in registers: AVX-512 has 32 of them, the others 16.
constexpr int MAX_BLOCK = LANES == 16 ? 8 : 4;
// Up to so many rows each thread rounds all inputs by itself, which takes less time than waiting for each other.
constexpr int FEW_ROWS = 4;
// Rounded rows that are used for all outputs before the next ones: they stay in a core's second-level cache.
constexpr int64_t CHUNK_BYTES = 256 << 10;

// How far ahead levels are asked for: memory's own prefetching stops at the end of each page.
constexpr int PREFETCH_BYTES = 6144;

// Rounded rows of inputs.
struct Activations {
    int64_t num_inputs, num_groups;
    std::vector<int8_t> levels;    // [rows, num_inputs]
    std::vector<float> scales;     // [rows, num_groups]
    std::vector<float> sums;       // [rows, num_groups]: of the rounded inputs
    std::vector<int32_t> offsets;  // [rows, num_groups]: -ZERO times the sum of the levels

    Activations(int64_t num_rows, int64_t num_inputs)
        : num_inputs(num_inputs),
          num_groups(num_inputs / GROUP),
          levels(num_rows * num_inputs),
          scales(num_rows * num_groups),
          sums(num_rows * num_groups),
          offsets(num_rows * num_groups) {}

    template <class T>
    void round_row(const T* x, int64_t row) {
        for (int64_t g = 0; g < num_groups; ++g) round_group(x + g * GROUP, row * num_groups + g);
    }

  private:
    template <class T>
    void round_group(const T* x, int64_t group) {
        constexpr int VECTORS = GROUP / LANES;
        Floats numbers[VECTORS];
        // The largest magnitude is found among the bits, as integers: NaN is larger than any number there, and stays.
        Lanes largest = {};
        for (int v = 0; v < VECTORS; ++v) {
            numbers[v] = load(x + v * LANES);
            const Lanes magnitude = (Lanes)numbers[v] & INT32_MAX;
            largest = magnitude > largest ? magnitude : largest;
        }
        const int32_t bits = reduce_maximum_lanes(largest);
        float magnitude;
        std::memcpy(&magnitude, &bits, sizeof magnitude);
        const float factor = magnitude > 0.0f ? 127.0f / magnitude : 0.0f;
        const Floats rounder = splat(12582912.0f);  // 1.5 * 2^23 leaves a rounded number in the low bits
        Lanes total = {};
        for (int v = 0; v < VECTORS; ++v) {
            const Lanes level = (Lanes)(numbers[v] * factor + rounder) - (Lanes)rounder;
            total += level;
            const auto bytes = __builtin_convertvector(level, Bytes);
            std::memcpy(&levels[group * GROUP + v * LANES], &bytes, sizeof bytes);
        }
        const int32_t sum = reduce_sum_lanes(total);
        scales[group] = magnitude / 127.0f;
        sums[group] = scales[group] * float(sum);
        offsets[group] = -ZERO * sum;
    }

    using Bytes = int8_t __attribute__((vector_size(LANES)));

    static int32_t reduce_maximum_lanes(Lanes lanes) {
        int32_t numbers[LANES];
        std::memcpy(numbers, &lanes, sizeof numbers);
        return *std::max_element(numbers, numbers + LANES);
    }

    static int32_t reduce_sum_lanes(Lanes lanes) {
        int32_t total = 0;
        for (int lane = 0; lane < LANES; ++lane) total += lanes[lane];
        return total;
    }
};

// One tile of the weight.
struct Tile {
    const uint8_t* levels;
    const uint16_t* scales;
    const uint16_t* minima;
};

// sums[r] += levels (as bytes) times quad q of group g of row r.
template <int BITS, int R>
inline void add_products(Lanes (&sums)[R], Lanes levels, const int8_t* const (&quads)[R], int64_t quad) {
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r) {
        Lane inputs;
        std::memcpy(&inputs, quads[r] + quad * 4, sizeof inputs);
        sums[r] = dot_bytes<BITS>(sums[r], levels, broadcast(inputs));
    }
}

// results[r * TILE ..]: the products of R rows with LANES outputs of a tile, from output `first` on.
template <int BITS, int R>
void multiply(const Tile& tile, int first, const Activations& rows, int64_t first_row, float* results) {
    const int8_t* quads[R];
    for (int r = 0; r < R; ++r) quads[r] = &rows.levels[(first_row + r) * rows.num_inputs];
    const int64_t num_groups = rows.num_groups, base = first_row * num_groups;
    const uint8_t* source = tile.levels + first * 4;
    Floats totals[R] = {};
    for (int64_t g = 0; g < num_groups; ++g) {
        Lanes sums[R];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r)
            sums[r] = BITS == 8 ? broadcast(rows.offsets[base + r * num_groups + g]) : Lanes{};
#pragma GCC unroll 8
        for (int i = 0; i < BITS; ++i, source += 4 * TILE) {
            __builtin_prefetch(source + PREFETCH_BYTES);
            const Lanes levels = load_lanes(reinterpret_cast<const Lane*>(source));
            if constexpr (BITS == 8) {
                add_products<8>(sums, levels, quads, g * 8 + i);
            } else {
                add_products<4>(sums, levels & 0x0F0F0F0F, quads, g * 8 + 2 * i);
                add_products<4>(sums, (levels >> 4) & 0x0F0F0F0F, quads, g * 8 + 2 * i + 1);
            }
        }
        const Floats scale = load_halves(tile.scales + g * TILE + first);
        Floats minimum = {};
        if constexpr (BITS == 4) minimum = load_halves(tile.minima + g * TILE + first);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
            const int64_t group = base + r * num_groups + g;
            totals[r] += __builtin_convertvector(sums[r], Floats) * (scale * rows.scales[group]);
            if constexpr (BITS == 4) totals[r] += minimum * rows.sums[group];
        }
    }
    for (int r = 0; r < R; ++r) store(results + r * TILE + first, totals[r]);
}

// The same for all 16 outputs and `size` rows, with the number of rows as a constant.
template <int BITS, int R = MAX_BLOCK>
void multiply_block(int size, const Tile& tile, const Activations& rows, int64_t first_row, float* results) {
    if constexpr (R > 1) {
        if (size < R) return multiply_block<BITS, R - 1>(size, tile, rows, first_row, results);
    }
    for (int first = 0; first < TILE; first += LANES) multiply<BITS, R>(tile, first, rows, first_row, results);
}

template <class X, class Y>
class Linear {
  public:
    explicit Linear(const LinearCall& call)
        : call(call),
          num_groups(call.num_inputs / GROUP),
          num_columns(call.is_gated ? call.num_outputs / 2 : call.num_outputs),
          num_tiles((num_columns + TILE - 1) / TILE) {}

    void run() const {
        if (call.num_rows <= FEW_ROWS) return run_few();
        int64_t chunk = std::max<int64_t>(MAX_BLOCK, CHUNK_BYTES / call.num_inputs / MAX_BLOCK * MAX_BLOCK);
        chunk = std::min(chunk, call.num_rows);
        Activations rows(chunk, call.num_inputs);
#pragma omp parallel num_threads(call.num_threads)
        for (int64_t start = 0; start < call.num_rows; start += chunk) {
            const int64_t count = std::min(chunk, call.num_rows - start);
#pragma omp for schedule(static)
            for (int64_t row = 0; row < count; ++row) rows.round_row(input(start + row), row);
#pragma omp for schedule(dynamic, 2)
            for (int64_t tile = 0; tile < num_tiles; ++tile) compute(tile, rows, start, count);
        }
    }

  private:
    void run_few() const {
#pragma omp parallel num_threads(call.num_threads)
        {
            Activations rows(call.num_rows, call.num_inputs);
            for (int64_t row = 0; row < call.num_rows; ++row) rows.round_row(input(row), row);
#pragma omp for schedule(dynamic, 4)
            for (int64_t tile = 0; tile < num_tiles; ++tile) compute(tile, rows, 0, call.num_rows);
        }
    }

    const X* input(int64_t row) const { return static_cast<const X*>(call.x) + row * call.num_inputs; }

    Tile tile_at(int64_t number) const {
        const int64_t group = number * num_groups;
        return {call.levels + group * 4 * TILE * call.bits, call.scales + group * TILE,
                call.minima ? call.minima + group * TILE : nullptr};
    }

    // Outputs of one tile for `count` rows, which are rows start, start + 1, ... of the output.
    void compute(int64_t tile, const Activations& rows, int64_t start, int64_t count) const {
        alignas(64) float results[MAX_BLOCK * TILE], values[MAX_BLOCK * TILE];
        for (int64_t first = 0; first < count; first += MAX_BLOCK) {
            const int size = int(std::min<int64_t>(MAX_BLOCK, count - first));
            multiply_tile(size, tile, rows, first, results);
            if (call.is_gated) {
                multiply_tile(size, tile + num_tiles, rows, first, values);
                for (int i = 0; i < size * TILE; i += LANES) store(results + i, silu(load(results + i)) * load(values + i));
            }
            for (int r = 0; r < size; ++r) write(start + first + r, tile * TILE, results + r * TILE);
        }
    }

    void multiply_tile(int size, int64_t tile, const Activations& rows, int64_t first, float* results) const {
        const Tile weight = tile_at(tile);
        call.bits == 4 ? multiply_block<4>(size, weight, rows, first, results)
                       : multiply_block<8>(size, weight, rows, first, results);
        if (!call.bias) return;
        const int64_t column = tile * TILE, count = std::min<int64_t>(TILE, call.num_outputs - column);
        for (int r = 0; r < size; ++r)
            for (int i = 0; i < count; ++i) results[r * TILE + i] += call.bias[column + i];
    }

    void write(int64_t row, int64_t column, float* results) const {
        const int64_t at = row * num_columns + column;
        Y* output = static_cast<Y*>(call.output) + at;
        const Y* residual = call.residual ? static_cast<const Y*>(call.residual) + at : nullptr;
        for (int i = 0; i < TILE; i += LANES) {
            const int count = int(std::min<int64_t>(LANES, num_columns - column - i));
            if (count <= 0) return;
            Floats numbers = load(results + i);
            if (residual) numbers += load_some(residual + i, count);
            store_some(output + i, numbers, count);
        }
    }

    const LinearCall& call;
    const int64_t num_groups, num_columns, num_tiles;
};

}  // namespace

extern "C" {
void linear_float32_float32(const LinearCall* call) { Linear<float, float>(*call).run(); }
void linear_bfloat16_bfloat16(const LinearCall* call) { Linear<BFloat16, BFloat16>(*call).run(); }
void linear_bfloat16_float32(const LinearCall* call) { Linear<BFloat16, float>(*call).run(); }
}
