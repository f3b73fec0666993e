// Decoder layers one after the other, in a single call: what a step of one token takes is otherwise spent between kernels.
//
// The residual stays in `hidden`, to which the last product of attention and of the feed-forward layer add.
#include "cpu_calls.h"

namespace {

// The kernels for one type of numbers.
struct Kernels {
    void (*rms_norm)(const NormCall*);
    void (*linear)(const LinearCall*);
    int32_t (*write)(const WriteCall*);
    int32_t (*attention)(const AttentionCall*);
};

class Decoder {
  public:
    Decoder(const DecoderCall& call, const Kernels& kernels)
        : call(call), kernels(kernels), num_tokens(call.write.num_tokens), num_threads(call.write.num_threads) {}

    int32_t run() const {
        for (int64_t i = 0; i < call.num_layers; ++i) {
            const DecoderLayer& layer = call.layers[i];
            norm(layer.attention_norm, layer.eps);
            linear(layer.qkv, call.normed, call.heads);
            if (const int32_t status = attend(layer, i * call.layer_stride)) return status;
            linear(layer.out, call.attention.output, call.hidden, call.hidden);
            norm(layer.feed_forward_norm, layer.eps);
            linear(layer.gate_up, call.normed, call.activated, nullptr, true);
            linear(layer.down, call.activated, call.hidden, call.hidden);
        }
        return OK;
    }

  private:
    void norm(const void* weight, float eps) const {
        const NormCall norm{call.hidden, nullptr, weight,      call.normed, nullptr, num_tokens,
                            call.hidden_size, eps, num_threads};
        kernels.rms_norm(&norm);
    }

    void linear(const LinearWeight& weight, const void* x, void* output, const void* residual = nullptr,
                bool is_gated = false) const {
        const LinearCall linear{x,
                                weight.bias,
                                residual,
                                output,
                                weight.levels,
                                weight.scales,
                                weight.minima,
                                num_tokens,
                                weight.num_inputs,
                                weight.num_outputs,
                                int32_t(weight.bits),
                                is_gated,
                                num_threads};
        kernels.linear(&linear);
    }

    int32_t attend(const DecoderLayer& layer, int64_t offset) const {
        WriteCall write = call.write;
        write.layer = static_cast<char*>(write.layer) + offset;
        if (!kernels.write(&write)) return BAD_SLOT;
        AttentionCall attention = call.attention;
        attention.layer = static_cast<const char*>(attention.layer) + offset;
        attention.scale = layer.scale;
        attention.sliding_window = int32_t(layer.sliding_window);
        return kernels.attention(&attention);
    }

    const DecoderCall& call;
    const Kernels& kernels;
    const int64_t num_tokens;
    const int32_t num_threads;
};

constexpr Kernels FLOAT32{rms_norm_float32, linear_float32_float32, write_float32, attention_float32};
constexpr Kernels BFLOAT16{rms_norm_bfloat16, linear_bfloat16_bfloat16, write_bfloat16, attention_bfloat16};

}  // namespace

extern "C" int32_t decoder_float32(const DecoderCall* call) { return Decoder(*call, FLOAT32).run(); }
extern "C" int32_t decoder_bfloat16(const DecoderCall* call) { return Decoder(*call, BFLOAT16).run(); }
