// Paged attention on the CPU.
//
// A context is cut into tiles of TILE tokens, counted from its start. attend() gives a tile's own softmax for a few
// query rows: maximum m, sum l and weighted values o. merge() joins tiles in order, as the block-wise formula of the
// PagedAttention paper does, with a common maximum. Which thread computes a tile, in which group of rows, and whether
// tiles are merged at once or at the end, changes nothing in a row's arithmetic: its result does not depend on the rest
// of the batch or on how a prompt is cut into chunks.
//
// The queries of one sequence that read the same key/value head make up query rows: row r is query r / group of the
// item, and head r % group of those that share the key/value head.
#include "cpu_calls.h"
#include "cpu_vector.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

namespace {

constexpr int TILE = 128;
constexpr int MAX_VECTORS = TILE / LANES;
constexpr int MAX_HEAD_DIM = 256;
constexpr int MAX_ITEM_ROWS = 48;
// Sums of GROUP query rows times COLUMNS vectors stay in registers: AVX-512 has 32 of them, the others 16.
constexpr int GROUP = LANES == 16 ? 6 : 4;
constexpr int COLUMNS = LANES == 16 ? 4 : 2;
constexpr float MINUS_INFINITY = -std::numeric_limits<float>::infinity();

// `depth` vectors one below the other, `stride` lanes apart.
struct Column {
    const Lane* first;
    int stride;

    const Lane* operator[](int i) const { return first + int64_t(i) * stride; }
};

// sums[r][c] += row r times column c: the one inner loop, for scores and for values. A row is `depth` lanes.
// Memory is slower than arithmetic, and blocks lie scattered: with each vector that is used, one that will be used next
// is asked for.
template <class T, int R, int C>
inline __attribute__((always_inline)) void multiply(Floats (&sums)[R][C], const Lane* rows, int row_stride,
                                                    const Column (&columns)[C], const Column (&ahead)[C], int depth) {
    for (int i = 0; i < depth; ++i) {
        Lanes vectors[C];
        for (int c = 0; c < C; ++c) {
            vectors[c] = load_lanes(columns[c][i]);
            __builtin_prefetch(ahead[c][i]);
        }
        for (int r = 0; r < R; ++r) {
            const Lanes number = broadcast(rows[r * row_stride + i]);
            for (int c = 0; c < C; ++c) sums[r][c] = dot<T>(sums[r][c], number, vectors[c]);
        }
    }
}

// Tokens of a tile that a query row sees: begin <= token < end, counted from the tile's start.
struct Span {
    int begin, end;
};

// A softmax over some tokens: the largest score, and the sum of exp(score - largest).
struct Weight {
    float largest = MINUS_INFINITY;
    float sum = 0.0f;
};

// Where the tokens of a tile lie. A vector's worth of tokens is always within one block; pointers past the last token
// repeat the last.
struct Tile {
    int num_tokens;
    const Lane* keys[MAX_VECTORS];
    const Lane* values[MAX_VECTORS];

    int num_vectors() const { return (num_tokens + LANES - 1) / LANES; }
};

// Queries first .. first + count of one sequence, one key/value head: what one thread works on.
struct Item {
    int row, kv_head, first, count;
    int first_position;  // of query `first` in the sequence
    int begin_tile, end_tile;
};

template <class T>
class Attention {
  public:
    explicit Attention(const AttentionCall& call)
        : call(call), group(call.num_heads / call.num_kv_heads), head_lanes(call.head_dim / WIDTH<T>) {}

    Status run() {
        if (!lengths_fit()) return BAD_LENGTHS;
        const std::vector<Item> items = make_items();
        const bool split = items.size() < size_t(4) * call.num_threads;
        if (split) {
            run_split(items);
        } else {
            run_jobs(items, [this](size_t i, const Item& item, Rows& rows) { write_output(item, rows); });
        }
        return block_ids_fit ? OK : BAD_BLOCK;
    }

  private:
    // Softmax and weighted values of an item's query rows over the tiles seen so far.
    struct Rows {
        std::vector<Weight> weights;
        std::vector<float> values;

        Rows(int num_rows, int head_dim) : weights(num_rows), values(size_t(num_rows) * head_dim) {}
        void clear() { std::fill(weights.begin(), weights.end(), Weight{}); }
    };

    bool lengths_fit() const {
        if (call.query_starts[0] != 0 || call.query_starts[call.num_rows] != call.num_tokens) return false;
        for (int row = 0; row < call.num_rows; ++row) {
            const int64_t query_len = int64_t(call.query_starts[row + 1]) - call.query_starts[row];
            const int64_t context_len = call.context_lens[row];
            if (query_len < 0 || query_len > context_len) return false;
            if (context_len > call.table_width * call.block_size) return false;
        }
        return true;
    }

    std::vector<Item> make_items() const {
        std::vector<Item> items;
        const int max_count = std::max(1, MAX_ITEM_ROWS / group);
        for (int row = 0; row < call.num_rows; ++row) {
            const int query_len = call.query_starts[row + 1] - call.query_starts[row];
            for (int first = 0; first < query_len; first += max_count) {
                const int count = std::min(max_count, query_len - first);
                const int position = call.context_lens[row] - query_len + first;
                const int begin = call.sliding_window ? std::max(0, position + 1 - call.sliding_window) : 0;
                const int end_tile = (position + count + TILE - 1) / TILE;
                for (int head = 0; head < call.num_kv_heads; ++head)
                    items.push_back({row, head, first, count, position, begin / TILE, end_tile});
            }
        }
        return items;
    }

    // Few items: threads share the tiles of an item, which are merged at the end, in the order of a single thread.
    void run_split(const std::vector<Item>& items) {
        std::vector<Item> parts;
        for (const Item& item : items)
            for (int tile = item.begin_tile; tile < item.end_tile; ++tile) {
                parts.push_back(item);
                parts.back().begin_tile = tile;
                parts.back().end_tile = tile + 1;
            }
        std::vector<Rows> results(parts.size(), Rows(0, 0));
        run_jobs(parts, [&results](size_t i, const Item&, Rows& rows) { std::swap(results[i], rows); });
        size_t i = 0;
        for (const Item& item : items) {
            Rows& total = results[i++];
            for (int tile = item.begin_tile + 1; tile < item.end_tile; ++tile, ++i)
                for (int r = 0; r < item.count * group; ++r)
                    merge(results[i].weights[r], &results[i].values[r * call.head_dim], total, r);
            write_output(item, total);
        }
    }

    // Threads take items in turn, each one ahead of its work so that it knows which memory it will need next.
    template <class Finish>
    void run_jobs(const std::vector<Item>& items, Finish finish) {
        std::atomic<size_t> untaken{0};
#pragma omp parallel num_threads(call.num_threads)
        {
            std::vector<T> queries(size_t(max_rows()) * call.head_dim);
            Tile tiles[2];
            Tile *here = &tiles[0], *ahead = &tiles[1];
            size_t current = untaken++;
            if (current < items.size()) locate(items[current], items[current].begin_tile, *here);
            while (current < items.size()) {
                const Item& item = items[current];
                const size_t following = untaken++;
                Rows rows(item.count * group, call.head_dim);
                load_queries(item, queries.data());
                for (int tile = item.begin_tile; tile < item.end_tile; ++tile) {
                    const bool last = tile + 1 == item.end_tile;
                    if (!last) {
                        locate(item, tile + 1, *ahead);
                    } else if (following < items.size()) {
                        locate(items[following], items[following].begin_tile, *ahead);
                    }
                    const bool any_ahead = !last || following < items.size();
                    attend_tile(item, tile, *here, any_ahead ? *ahead : *here, queries.data(), rows);
                    std::swap(here, ahead);
                }
                finish(current, item, rows);
                current = following;
            }
        }
    }

    int max_rows() const { return std::max(MAX_ITEM_ROWS, group); }

    void load_queries(const Item& item, T* queries) const {
        const T* source = static_cast<const T*>(call.query);
        const int64_t token = call.query_starts[item.row] + item.first;
        const size_t size = size_t(group) * call.head_dim;
        for (int i = 0; i < item.count; ++i)
            std::memcpy(queries + i * size, source + (token + i) * call.query_stride + item.kv_head * size, size * sizeof(T));
    }

    void write_output(const Item& item, const Rows& rows) const {
        T* target = static_cast<T*>(call.output);
        const int64_t token = call.query_starts[item.row] + item.first;
        for (int r = 0; r < item.count * group; ++r) {
            const int64_t head = (token + r / group) * call.num_heads + item.kv_head * group + r % group;
            const Floats factor = splat(1.0f / rows.weights[r].sum);
            for (int d = 0; d < call.head_dim; d += LANES)
                store(target + head * call.head_dim + d, load(&rows.values[r * call.head_dim + d]) * factor);
        }
    }

    void attend_tile(const Item& item, int number, const Tile& tile, const Tile& ahead, const T* queries,
                     Rows& rows) const {
        const int num_rows = item.count * group;
        for (int first = 0; first < num_rows; first += GROUP) {
            const int size = std::min(GROUP, num_rows - first);
            Span spans[GROUP];
            for (int r = 0; r < size; ++r) spans[r] = visible(item, (first + r) / group, number * TILE);
            if (spans[size - 1].end > 0) attend_rows<GROUP>(size, tile, ahead, queries, spans, first, rows);
        }
    }

    Span visible(const Item& item, int query, int tile_start) const {
        const int position = item.first_position + query;
        const int begin = call.sliding_window ? position + 1 - call.sliding_window : 0;
        return {begin - tile_start, position + 1 - tile_start};
    }

    // A block id that is out of range leaves the tile empty.
    void locate(const Item& item, int number, Tile& tile) {
        const int64_t region = int64_t(call.block_size) * head_lanes;
        const Lane* layer = static_cast<const Lane*>(call.layer) + 2 * region * item.kv_head;
        const int32_t* table = call.block_tables + item.row * call.table_width;
        const int start = number * TILE;
        tile.num_tokens = std::min(TILE, item.first_position + item.count - start);
        std::fill(tile.keys, tile.keys + MAX_VECTORS, layer);
        std::fill(tile.values, tile.values + MAX_VECTORS, layer);
        for (int v = 0; v < tile.num_vectors(); ++v) {
            const int position = start + v * LANES, offset = position % call.block_size;
            const int32_t block = table[position / call.block_size];
            if (block < 0 || block >= call.num_blocks) {
                block_ids_fit = false;
                tile.num_tokens = 0;
                return;
            }
            const Lane* keys = layer + block * (call.block_stride / WIDTH<T>);
            tile.keys[v] = keys + offset;
            tile.values[v] = keys + region + offset / WIDTH<T> * call.head_dim;
        }
    }

    // Calls attend() with the number of rows as a constant.
    template <int R>
    void attend_rows(int size, const Tile& tile, const Tile& ahead, const T* queries, const Span* spans, int first,
                     Rows& rows) const {
        if constexpr (R > 1) {
            if (size < R) return attend_rows<R - 1>(size, tile, ahead, queries, spans, first, rows);
        }
        attend<R>(tile, ahead, queries + first * call.head_dim, spans, first, rows);
    }

    template <int R>
    void attend(const Tile& tile, const Tile& ahead, const T* queries, const Span* spans, int first, Rows& rows) const {
        alignas(64) float scores[R * TILE];
        alignas(64) T probabilities[R * TILE];
        alignas(64) float values[R * MAX_HEAD_DIM];
        Weight weights[R];
        for (int v = 0; v < tile.num_vectors(); v += COLUMNS) score<R>(tile, queries, v, scores);
        for (int r = 0; r < R; ++r)
            weights[r] = softmax(scores + r * TILE, probabilities + r * TILE, tile.num_vectors(), spans[r]);
        int d = 0;
        for (; d + COLUMNS * LANES <= call.head_dim; d += COLUMNS * LANES)
            weigh<R, COLUMNS>(tile, ahead, probabilities, d, values);
        for (; d < call.head_dim; d += LANES) weigh<R, 1>(tile, ahead, probabilities, d, values);
        for (int r = 0; r < R; ++r) merge(weights[r], values + r * call.head_dim, rows, first + r);
    }

    // scores[r, token] of COLUMNS vectors of tokens; those past the end of the tile will be masked.
    template <int R>
    void score(const Tile& tile, const T* queries, int vector, float* scores) const {
        Floats sums[R][COLUMNS] = {};
        Column columns[COLUMNS], ahead[COLUMNS];
        for (int c = 0; c < COLUMNS; ++c) {
            columns[c] = {tile.keys[vector + c], call.block_size};
            ahead[c] = {tile.values[vector + c], LANES};
        }
        multiply<T>(sums, reinterpret_cast<const Lane*>(queries), head_lanes, columns, ahead, head_lanes);
        for (int r = 0; r < R; ++r)
            for (int c = 0; c < COLUMNS; ++c) store(scores + r * TILE + (vector + c) * LANES, sums[r][c]);
    }

    Weight softmax(float* scores, T* probabilities, int num_vectors, Span span) const {
        Floats largest = splat(MINUS_INFINITY);
        for (int v = 0; v < num_vectors; ++v) {
            const Lanes token = lane_numbers() + v * LANES;
            Floats s = load(scores + v * LANES) * call.scale;
            if (call.soft_cap > 0.0f) s = call.soft_cap * hyperbolic_tangent(s / call.soft_cap);
            s = (token >= span.begin) & (token < span.end) ? s : splat(MINUS_INFINITY);
            largest = maximum(s, largest);
            store(scores + v * LANES, s);
        }
        Weight weight;
        weight.largest = reduce_maximum(largest);
        const float base = weight.largest == MINUS_INFINITY ? 0.0f : weight.largest;
        Floats sum = {};
        for (int v = 0; v < num_vectors; ++v) {
            const Floats p = exponential(load(scores + v * LANES) - base);
            sum += p;
            store(probabilities + v * LANES, p);
        }
        weight.sum = reduce_sum(sum);
        return weight;
    }

    // values[r, d .. d + C * LANES] of one tile, [R, head_dim].
    template <int R, int C>
    void weigh(const Tile& tile, const Tile& next, const T* probabilities, int d, float* values) const {
        constexpr int DEPTH = LANES / WIDTH<T>;
        Floats sums[R][C] = {};
        Column columns[C], ahead[C];
        const Lane* rows = reinterpret_cast<const Lane*>(probabilities);
        const int whole = tile.num_tokens / WIDTH<T>;
        for (int v = 0; v * DEPTH < whole; ++v) {
            for (int c = 0; c < C; ++c) {
                columns[c] = {tile.values[v] + d + c * LANES, call.head_dim};
                ahead[c] = {next.keys[v] + (d / LANES + c) * call.block_size, call.head_dim / LANES * call.block_size};
            }
            multiply<T>(sums, rows + v * DEPTH, TILE / WIDTH<T>, columns, ahead, std::min(DEPTH, whole - v * DEPTH));
        }
        // Half of the last lanes may lie past the context, in a slot that may hold anything, even NaN: it is cleared.
        if (tile.num_tokens % WIDTH<T>) {
            const Lane* last = tile.values[tile.num_vectors() - 1] + whole % DEPTH * call.head_dim + d;
            for (int c = 0; c < C; ++c)
                for (int r = 0; r < R; ++r)
                    sums[r][c] = dot<T>(sums[r][c], broadcast(rows[r * TILE / WIDTH<T> + whole]),
                                        load_lanes(last + c * LANES) & 0xFFFF);
        }
        for (int r = 0; r < R; ++r)
            for (int c = 0; c < C; ++c) store(values + r * call.head_dim + d + c * LANES, sums[r][c]);
    }

    // Adds one tile to row r of the total. The first tile that the row sees is taken over as it is.
    void merge(const Weight& weight, const float* values, Rows& total, int r) const {
        if (weight.sum == 0.0f) return;
        Weight& sofar = total.weights[r];
        float* target = &total.values[r * call.head_dim];
        if (sofar.sum == 0.0f) {
            std::memcpy(target, values, call.head_dim * sizeof(float));
            sofar = weight;
            return;
        }
        const float largest = std::max(sofar.largest, weight.largest);
        const float keep = std::exp(sofar.largest - largest), add = std::exp(weight.largest - largest);
        for (int d = 0; d < call.head_dim; d += LANES)
            store(target + d, load(target + d) * keep + load(values + d) * add);
        sofar = {largest, sofar.sum * keep + weight.sum * add};
    }

    const AttentionCall& call;
    const int group;       // query heads per key/value head
    const int head_lanes;  // lanes of one head of one token
    std::atomic<bool> block_ids_fit{true};
};

}  // namespace

extern "C" int32_t attention_float32(const AttentionCall* call) { return Attention<float>(*call).run(); }
extern "C" int32_t attention_bfloat16(const AttentionCall* call) { return Attention<BFloat16>(*call).run(); }
