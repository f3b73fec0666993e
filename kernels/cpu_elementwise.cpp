// What surrounds attention on the CPU: writing keys and values, rotary embedding, RMSNorm and SwiGLU.
#include "cpu_calls.h"
#include "cpu_vector.h"

#include <algorithm>

namespace {

// Below so many numbers waking another thread costs more than it saves.
constexpr int64_t MIN_PARALLEL = 1 << 14;

int threads_for(int64_t numbers, int num_threads) { return numbers < MIN_PARALLEL ? 1 : num_threads; }

constexpr int MAX_HEAD_DIM = 256;

inline float to_float(float number) { return number; }

inline float to_float(BFloat16 number) {
    const uint32_t bits = uint32_t(number.bits) << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}

// Calls step(first, count) for the vectors of a row; the last may be shorter than LANES.
template <class Step>
inline void for_vectors(int64_t size, Step step) {
    int64_t first = 0;
    for (; first + LANES <= size; first += LANES) step(first, LANES);
    if (first < size) step(first, int(size - first));
}

// Rotates the pairs (i, i + half) of one head.
template <class T>
void rotate(const T* head, const float* cos, const float* sin, int half, T* rotated) {
    for_vectors(half, [=](int64_t i, int count) {
        const Floats first = load_some(head + i, count), second = load_some(head + half + i, count);
        const Floats c = load_some(cos + i, count), s = load_some(sin + i, count);
        store_some(rotated + i, first * c - second * s, count);
        store_some(rotated + half + i, second * c + first * s, count);
    });
}

template <class T>
class Write {
  public:
    explicit Write(const WriteCall& call) : call(call) {}

    // False if a slot is out of range; nothing is written then.
    bool run() const {
        const int64_t num_slots = call.num_blocks * call.block_size;
        for (int64_t t = 0; t < call.num_tokens; ++t)
            if (call.slots[t] < 0 || call.slots[t] >= num_slots) return false;
        const int64_t numbers = call.num_tokens * call.num_heads * call.head_dim;
#pragma omp parallel for num_threads(threads_for(numbers, call.num_threads))
        for (int64_t t = 0; t < call.num_tokens; ++t) {
            if (call.query) rotate_query(t);
            for (int head = 0; head < call.num_kv_heads; ++head) write(t, head);
        }
        return true;
    }

  private:
    const float* cos(int64_t token) const { return call.cos + token * (call.num_rotated / 2); }
    const float* sin(int64_t token) const { return call.sin + token * (call.num_rotated / 2); }

    void rotate_query(int64_t token) const {
        T* head = static_cast<T*>(call.query) + token * call.query_stride;
        for (int h = 0; h < call.num_heads; ++h, head += call.head_dim)
            rotate(head, cos(token), sin(token), call.num_rotated / 2, head);
    }

    void write(int64_t token, int head) const {
        const int64_t block = call.slots[token] / call.block_size, offset = call.slots[token] % call.block_size;
        const int64_t region = int64_t(call.block_size) * call.head_dim;
        T* keys = static_cast<T*>(call.layer) + block * call.block_stride + 2 * region * head;
        write_key(static_cast<const T*>(call.key) + token * call.key_stride + head * call.head_dim, token,
                  reinterpret_cast<Lane*>(keys) + offset);
        write_value(static_cast<const T*>(call.value) + token * call.value_stride + head * call.head_dim,
                    keys + region + offset / WIDTH<T> * WIDTH<T> * call.head_dim + offset % WIDTH<T>);
    }

    // Lanes of one token are block_size apart.
    void write_key(const T* source, int64_t token, Lane* target) const {
        alignas(64) T key[MAX_HEAD_DIM];
        std::memcpy(key, source, call.head_dim * sizeof(T));
        if (call.cos) rotate(source, cos(token), sin(token), call.num_rotated / 2, key);
        const Lane* lanes = reinterpret_cast<const Lane*>(key);
        for (int i = 0; i < call.head_dim / WIDTH<T>; ++i) target[i * call.block_size] = lanes[i];
    }

    // Numbers of one token are a lane apart.
    void write_value(const T* source, T* target) const {
        for (int i = 0; i < call.head_dim; ++i) target[i * WIDTH<T>] = source[i];
    }

    const WriteCall& call;
};

// total may be x itself, where there is no residual.
template <class T>
void norm_row(const NormCall& call, int64_t row) {
    const T* x = static_cast<const T*>(call.x) + row * call.size;
    const T* residual = static_cast<const T*>(call.residual) + row * call.size;
    const T* weight = static_cast<const T*>(call.weight);
    T* total = static_cast<T*>(call.total) + row * call.size;
    T* normed = static_cast<T*>(call.normed) + row * call.size;
    Floats squares = {};
    for_vectors(call.size, [&](int64_t i, int count) {
        Floats numbers = load_some(x + i, count);
        if (call.residual) {
            store_some(total + i, numbers + load_some(residual + i, count), count);
            numbers = load_some(total + i, count);
        }
        squares += numbers * numbers;
    });
    const float factor = 1.0f / std::sqrt(reduce_sum(squares) / call.size + call.eps);
    const T* source = call.residual ? total : x;
    for_vectors(call.size, [&](int64_t i, int count) {
        store_some(normed + i, load_some(source + i, count) * factor * load_some(weight + i, count), count);
    });
}

template <class T>
void rms_norm(const NormCall& call) {
#pragma omp parallel for num_threads(threads_for(call.num_rows * call.size, call.num_threads))
    for (int64_t row = 0; row < call.num_rows; ++row) norm_row<T>(call, row);
}

template <class T>
void silu_and_mul(const T* gate_up, T* output, int64_t num_rows, int64_t size, int num_threads) {
#pragma omp parallel for num_threads(threads_for(num_rows * size, num_threads))
    for (int64_t row = 0; row < num_rows; ++row) {
        const T* gate = gate_up + row * 2 * size;
        for_vectors(size, [=](int64_t i, int count) {
            const Floats product = silu(load_some(gate + i, count)) * load_some(gate + size + i, count);
            store_some(output + row * size + i, product, count);
        });
    }
}

}  // namespace

extern "C" {

int32_t write_float32(const WriteCall* call) { return Write<float>(*call).run(); }
int32_t write_bfloat16(const WriteCall* call) { return Write<BFloat16>(*call).run(); }

void rms_norm_float32(const NormCall* call) { rms_norm<float>(*call); }
void rms_norm_bfloat16(const NormCall* call) { rms_norm<BFloat16>(*call); }

void silu_and_mul_float32(const float* gate_up, float* output, int64_t num_rows, int64_t size, int32_t num_threads) {
    silu_and_mul(gate_up, output, num_rows, size, num_threads);
}
void silu_and_mul_bfloat16(const BFloat16* gate_up, BFloat16* output, int64_t num_rows, int64_t size,
                           int32_t num_threads) {
    silu_and_mul(gate_up, output, num_rows, size, num_threads);
}
}
