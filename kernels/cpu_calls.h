// The plain C interface of the kernels: what Python fills in, and what one kernel calls of another.
#pragma once

#include <cstdint>

enum Status : int32_t { OK = 0, BAD_LENGTHS = 1, BAD_BLOCK = 2, BAD_SLOT = 3 };

struct AttentionCall {
    const void* query;            // [num_tokens, num_heads, head_dim], a token every query_stride numbers
    void* output;                 // [num_tokens, num_heads, head_dim]
    const void* layer;            // block 0 of this layer: [num_kv_heads, 2, block_size * head_dim]
    const int32_t* query_starts;  // [num_rows + 1]
    const int32_t* context_lens;  // [num_rows]
    const int32_t* block_tables;  // [num_rows, table_width]
    int64_t num_tokens;
    int64_t query_stride;
    int64_t block_stride;         // numbers from one block to the next
    int64_t num_blocks;
    int64_t table_width;
    int32_t num_rows;
    int32_t num_heads;
    int32_t num_kv_heads;
    int32_t head_dim;
    int32_t block_size;
    int32_t sliding_window;       // 0: none
    float scale;
    float soft_cap;               // 0: none
    int32_t num_threads;
};

struct WriteCall {
    void* query;            // [num_tokens, num_heads, head_dim], rotated in place; null: only write
    const void* key;        // [num_tokens, num_kv_heads, head_dim]
    const void* value;      // the same
    const float* cos;       // [num_tokens, num_rotated / 2]; null: no rotation
    const float* sin;
    void* layer;            // block 0 of this layer: [num_kv_heads, 2, block_size * head_dim]
    const int64_t* slots;   // [num_tokens]
    int64_t num_tokens;
    int64_t query_stride;   // numbers from one token to the next
    int64_t key_stride;
    int64_t value_stride;
    int64_t block_stride;   // numbers from one block to the next
    int64_t num_blocks;
    int32_t num_heads;
    int32_t num_kv_heads;
    int32_t head_dim;
    int32_t num_rotated;
    int32_t block_size;
    int32_t num_threads;
};

struct NormCall {
    const void* x;         // [num_rows, size]
    const void* residual;  // the same; null: none
    const void* weight;    // [size]
    void* normed;          // [num_rows, size]
    void* total;           // x + residual; null: without a residual
    int64_t num_rows;
    int64_t size;
    float eps;
    int32_t num_threads;
};

struct LinearCall {
    const void* x;            // [num_rows, num_inputs]
    const float* bias;        // [num_outputs]; null: none
    const void* residual;     // [num_rows, num_outputs], added to the result; null: none
    void* output;             // [num_rows, num_outputs], or half as many columns if gated
    const uint8_t* levels;    // [num_tiles, num_groups, 128 * bits]
    const uint16_t* scales;   // [num_tiles, num_groups, 32]
    const uint16_t* minima;   // the same; null at 8 bits
    int64_t num_rows;
    int64_t num_inputs;
    int64_t num_outputs;
    int32_t bits;
    int32_t is_gated;         // the first half of the outputs are gates g, the second values v: store silu(g) v
    int32_t num_threads;
};

// A weight of few bits, as in LinearCall.
struct LinearWeight {
    const uint8_t* levels;
    const uint16_t* scales;
    const uint16_t* minima;
    const float* bias;
    int64_t num_inputs;
    int64_t num_outputs;
    int64_t bits;
};

struct DecoderLayer {
    const void* attention_norm;     // [hidden_size]
    const void* feed_forward_norm;  // the same
    LinearWeight qkv, out, gate_up, down;
    float scale;                    // on scores
    float eps;
    int64_t sliding_window;         // 0: none
};

struct DecoderCall {
    const DecoderLayer* layers;
    int64_t num_layers;
    int64_t layer_stride;     // bytes from a layer of the cache to the next
    int64_t hidden_size;
    void* hidden;             // [num_tokens, hidden_size], in and out
    void* normed;             // room for as much
    void* heads;              // room for queries, keys and values, to which `write` and `attention` point
    void* activated;          // room for [num_tokens, inputs of `down`]
    WriteCall write;          // of layer 0
    AttentionCall attention;  // the same; its output is room for what heads give
};

extern "C" {
int32_t attention_float32(const AttentionCall* call);
int32_t attention_bfloat16(const AttentionCall* call);
int32_t write_float32(const WriteCall* call);
int32_t write_bfloat16(const WriteCall* call);
void rms_norm_float32(const NormCall* call);
void rms_norm_bfloat16(const NormCall* call);
void linear_float32_float32(const LinearCall* call);
void linear_bfloat16_bfloat16(const LinearCall* call);
void linear_bfloat16_float32(const LinearCall* call);
int32_t decoder_float32(const DecoderCall* call);
int32_t decoder_bfloat16(const DecoderCall* call);
}
