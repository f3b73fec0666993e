// Linear layers with 4-bit and 8-bit weights on the CPU.
//
// Inputs are cut into groups of 32. A weight is stored as levels u, with a scale s (and at 4 bits a minimum m) for each
// output and group: w = u s + m at 4 bits, w = (u - 128) s at 8 bits. A row of inputs is rounded on the fly to signed
// bytes a with one scale d for each group. So a group adds d (s sum(u a) + m sum(a)) to an output: the sums over bytes
// are exact integers, and only the sum over groups is rounded, always in the same order, whatever other rows are
// computed along. A row's result thus does not depend on its neighbours or on the number of threads.
//
// Outputs are computed in tiles of 32. The levels of a tile lie group by group, four inputs of each of the 32 outputs
// side by side (128 bytes); at 4 bits the high halves of the bytes hold the four inputs that follow.
#include "cpu_bytes.h"
#include "cpu_calls.h"

#include <algorithm>
#include <vector>

namespace {

constexpr int GROUP = 32;
constexpr int QUADS = GROUP / 4;
constexpr int TILE = 32;
constexpr int LINE = 4 * TILE;  // bytes of a quad, four inputs, of a tile
constexpr int ZERO = 128;       // level of 0 at 8 bits
// Sums of MAX_BLOCK rows stay in registers: AVX-512 has 32 of them, the others 16. Of a tile that is taken apart, half as
// many rows at AVX-512 meet two vectors of outputs at once, which takes fewer loads.
constexpr int MAX_BLOCK = LANES == 16 ? 8 : 4;
constexpr int UNPACKED_BLOCK = 4;
// Up to so many rows each thread rounds all inputs by itself, which takes less time than waiting for each other.
constexpr int FEW_ROWS = 4;
// From so many rows on a tile's levels are taken apart once for all of them.
constexpr int MANY_ROWS = 32;
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

// Levels as they are stored.
template <int BITS>
struct Stored {
    const uint8_t* levels;

    // One plane of quad `quad` of a group's inputs, for LANES outputs from `first` on.
    Lanes at(int64_t group, int quad, int plane, int first) const {
        const int line = BITS == 4 ? quad / 2 : quad;
        const uint8_t* source = levels + (group * BITS + line) * LINE;
        if (first % 16 == 0) __builtin_prefetch(source + first * 4 + PREFETCH_BYTES);
        const Lanes bytes = load_lanes(reinterpret_cast<const Lane*>(source + first * 4));
        if (BITS == 8 && PLANES<BITS> == 1) return bytes;
        const bool is_high = BITS == 4 ? quad % 2 : plane;
        return (is_high ? bytes >> 4 : bytes) & 0x0F0F0F0F;
    }
};

// Levels taken apart: a line for each plane of each quad.
template <int BITS>
struct Unpacked {
    static constexpr int64_t GROUP_BYTES = QUADS * PLANES<BITS> * LINE;
    const uint8_t* levels;

    Lanes at(int64_t group, int quad, int plane, int first) const {
        const uint8_t* source = levels + group * GROUP_BYTES + (quad * PLANES<BITS> + plane) * LINE;
        return load_lanes(reinterpret_cast<const Lane*>(source + first * 4));
    }
};

template <int BITS>
void unpack(const Tile& tile, int64_t num_groups, uint8_t* target) {
    const Stored<BITS> stored{tile.levels};
    for (int64_t g = 0; g < num_groups; ++g)
        for (int quad = 0; quad < QUADS; ++quad)
            for (int plane = 0; plane < PLANES<BITS>; ++plane)
                for (int first = 0; first < TILE; first += LANES, target += sizeof(Lanes)) {
                    const Lanes levels = stored.at(g, quad, plane, first);
                    std::memcpy(target, &levels, sizeof levels);
                }
}

// products[r][c] += what row r and vector c of the outputs give in one group.
template <int BITS, int R, int C, class Levels>
inline __attribute__((always_inline)) void add_group(Products (&products)[R][C][PLANES<BITS>], const Levels& levels,
                                                     int64_t group, int first, const int8_t* inputs, int64_t stride) {
#pragma GCC unroll 8
    for (int quad = 0; quad < QUADS; ++quad) {
#pragma GCC unroll 2
        for (int plane = 0; plane < PLANES<BITS>; ++plane) {
            Lanes columns[C];
#pragma GCC unroll 4
            for (int c = 0; c < C; ++c) columns[c] = levels.at(group, quad, plane, first + c * LANES);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                Lane numbers;
                std::memcpy(&numbers, inputs + r * stride + quad * 4, sizeof numbers);
#pragma GCC unroll 4
                for (int c = 0; c < C; ++c) products[r][c][plane].add(columns[c], broadcast(numbers));
            }
        }
    }
}

// results[r * TILE ..]: the products of R rows with C vectors of outputs of a tile, from output `first` on.
template <int BITS, int R, int C, class Levels>
void multiply(const Levels& levels, const Tile& tile, int first, const Activations& rows, int64_t first_row,
              float* results) {
    const int64_t num_groups = rows.num_groups;
    const int8_t* inputs = &rows.levels[first_row * rows.num_inputs];
    Floats totals[R][C] = {};
    for (int64_t g = 0; g < num_groups; ++g) {
        Products products[R][C][PLANES<BITS>];
        add_group<BITS, R, C>(products, levels, g, first, inputs + g * GROUP, rows.num_inputs);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
            const int64_t outputs = g * TILE + first + c * LANES;
            const Floats scale = load_halves(tile.scales + outputs);
            Floats minimum = {};
            if constexpr (BITS == 4) minimum = load_halves(tile.minima + outputs);
#pragma GCC unroll 16
            for (int r = 0; r < R; ++r) {
                const int64_t group = (first_row + r) * num_groups + g;
                Lanes sum = products[r][c][0].total(0);
                if constexpr (PLANES<BITS> == 2) sum += products[r][c][1].total(1);
                if constexpr (BITS == 8) sum += broadcast(rows.offsets[group]);
                totals[r][c] += __builtin_convertvector(sum, Floats) * (scale * rows.scales[group]);
                if constexpr (BITS == 4) totals[r][c] += minimum * rows.sums[group];
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) store(results + r * TILE + first + c * LANES, totals[r][c]);
}

// The same for all outputs of a tile.
template <int BITS, int R, class Levels>
void multiply_rows(const Levels& levels, const Tile& tile, const Activations& rows, int64_t first_row, float* results) {
    // One vector of inputs serves two of outputs, if registers hold the sums of both. At 4 bits that pays on AVX-512 even
    // where some of the totals find no register.
    constexpr int C = 2 * R * PLANES<BITS> <= (BITS == 4 && LANES == 16 ? 16 : 8) ? 2 : 1;
    for (int first = 0; first < TILE; first += C * LANES)
        multiply<BITS, R, C>(levels, tile, first, rows, first_row, results);
}

// The same for `size` rows, with their number as a constant.
template <int BITS, int R = MAX_BLOCK>
void multiply_block(int size, const Tile& tile, const Activations& rows, int64_t first_row, float* results) {
    if constexpr (R > 1) {
        if (size < R) return multiply_block<BITS, R - 1>(size, tile, rows, first_row, results);
    }
    multiply_rows<BITS, R>(Stored<BITS>{tile.levels}, tile, rows, first_row, results);
}

template <int BITS, class X, class Y>
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
        {
            std::vector<uint8_t> unpacked(call.num_rows < MANY_ROWS ? 0 : 2 * unpacked_bytes());
            for (int64_t start = 0; start < call.num_rows; start += chunk) {
                const int64_t count = std::min(chunk, call.num_rows - start);
#pragma omp for schedule(static)
                for (int64_t row = 0; row < count; ++row) rows.round_row(input(start + row), row);
#pragma omp for schedule(dynamic, unpacked.empty() ? 2 : 1)
                for (int64_t tile = 0; tile < num_tiles; ++tile) compute(tile, rows, start, count, unpacked.empty() ? nullptr : unpacked.data());
            }
        }
    }

  private:
    void run_few() const {
#pragma omp parallel num_threads(call.num_threads)
        {
            Activations rows(call.num_rows, call.num_inputs);
            for (int64_t row = 0; row < call.num_rows; ++row) rows.round_row(input(row), row);
#pragma omp for schedule(dynamic, 4)
            for (int64_t tile = 0; tile < num_tiles; ++tile) compute(tile, rows, 0, call.num_rows, nullptr);
        }
    }

    const X* input(int64_t row) const { return static_cast<const X*>(call.x) + row * call.num_inputs; }

    Tile tile_at(int64_t number) const {
        const int64_t group = number * num_groups;
        return {call.levels + group * BITS * LINE, call.scales + group * TILE,
                call.minima ? call.minima + group * TILE : nullptr};
    }

    int64_t unpacked_bytes() const { return num_groups * Unpacked<BITS>::GROUP_BYTES; }

    // Outputs of one tile for `count` rows, which are rows start, start + 1, ... of the output. `unpacked` has room for
    // the tile's levels, and for those of its values if gated; null: there are too few rows for that.
    void compute(int64_t tile, const Activations& rows, int64_t start, int64_t count, uint8_t* unpacked) const {
        uint8_t* unpacked_values = unpacked ? unpacked + unpacked_bytes() : nullptr;
        if (unpacked) unpack<BITS>(tile_at(tile), num_groups, unpacked);
        if (unpacked && call.is_gated) unpack<BITS>(tile_at(tile + num_tiles), num_groups, unpacked_values);
        alignas(64) float results[MAX_BLOCK * TILE], values[MAX_BLOCK * TILE];
        const int64_t block = unpacked ? UNPACKED_BLOCK : MAX_BLOCK;
        for (int64_t first = 0; first < count; first += block) {
            const int size = int(std::min(block, count - first));
            multiply_tile(size, tile, unpacked, rows, first, results);
            if (call.is_gated) {
                multiply_tile(size, tile + num_tiles, unpacked_values, rows, first, values);
                for (int i = 0; i < size * TILE; i += LANES) store(results + i, silu(load(results + i)) * load(values + i));
            }
            for (int r = 0; r < size; ++r) write(start + first + r, tile * TILE, results + r * TILE);
        }
    }

    void multiply_tile(int size, int64_t number, const uint8_t* unpacked, const Activations& rows, int64_t first,
                       float* results) const {
        const Tile tile = tile_at(number);
        if (unpacked && size == UNPACKED_BLOCK) {
            multiply_rows<BITS, UNPACKED_BLOCK>(Unpacked<BITS>{unpacked}, tile, rows, first, results);
        } else {
            multiply_block<BITS>(size, tile, rows, first, results);
        }
        if (!call.bias) return;
        const int64_t column = number * TILE, count = std::min<int64_t>(TILE, call.num_outputs - column);
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

template <class X, class Y>
void run(const LinearCall& call) {
    call.bits == 4 ? Linear<4, X, Y>(call).run() : Linear<8, X, Y>(call).run();
}

}  // namespace

extern "C" {
void linear_float32_float32(const LinearCall* call) { run<float, float>(*call); }
void linear_bfloat16_bfloat16(const LinearCall* call) { run<BFloat16, BFloat16>(*call); }
void linear_bfloat16_float32(const LinearCall* call) { run<BFloat16, float>(*call); }
}
