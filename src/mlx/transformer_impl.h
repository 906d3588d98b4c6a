// What the files of the transformer on MLX share among themselves.
#pragma once

#include "mlx/transformer.h"

namespace qwen_image::on_mlx {

// One stream (text or picture) of a block; see TransformerWeights.
struct Transformer::Stream {
  Stream(const TransformerWeights::Stream& w, const Placement& placement)
      : names(w.names),
        mod(w.mod, placement),
        to_q(w.to_q, placement),
        to_k(w.to_k, placement),
        to_v(w.to_v, placement),
        to_out(w.to_out, placement),
        mlp_proj(w.mlp.proj, placement),
        mlp_out(w.mlp.out, placement),
        norm_q(VectorOf(w.norm_q, placement)),
        norm_k(VectorOf(w.norm_k, placement)) {}

  std::vector<Linear*> layers() { return {&mod, &to_q, &to_k, &to_v, &to_out, &mlp_proj, &mlp_out}; }

  const TransformerWeights::StreamNames* names;
  Linear mod, to_q, to_k, to_v, to_out, mlp_proj, mlp_out;
  array norm_q, norm_k;  // [head_dim]
};

struct Transformer::Block {
  Block(const TransformerWeights::Block& w, const Placement& placement)
      : img(w.img, placement), txt(w.txt, placement) {
    for (Stream* stream : {&img, &txt})
      for (Linear* layer : stream->layers()) form += layer->Form() + " ";
  }

  void Visit(const std::function<void(array&)>& visit) {
    for (Stream* stream : {&img, &txt}) {
      for (Linear* layer : stream->layers()) layer->Visit(visit);
      visit(stream->norm_q);
      visit(stream->norm_k);
    }
  }

  Stream img, txt;
  std::string form;  // of all its layers
};

struct Transformer::Weights {
  Weights(const TransformerWeights& w, const Placement& placement)
      : img_in(w.img_in, placement),
        txt_in(w.txt_in, placement),
        time_linear_1(w.time_linear_1, placement),
        time_linear_2(w.time_linear_2, placement),
        norm_out_linear(w.norm_out_linear, placement),
        proj_out(w.proj_out, placement),
        txt_norm(ToDevice(w.txt_norm)) {}

  Linear img_in, txt_in, time_linear_1, time_linear_2, norm_out_linear, proj_out;
  array txt_norm;
  LazyLayers<Block> transformer_blocks;
};

}  // namespace qwen_image::on_mlx
