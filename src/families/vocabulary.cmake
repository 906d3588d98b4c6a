# What families call their parts: a library of its own, below the reader of weights and the comparison of runs.
qwen_image_library(vocabulary
  SOURCES src/families/checkpoint_names.cc src/families/component.cc src/families/computing_order.cc src/families/renaming.cc
    src/families/text_encoder_names.cc src/families/vocabulary.cc src/families/wan_vae_names.cc
    src/families/qwen_image/checkpoint_names.cc src/families/qwen_image/foreign_names.cc
    src/families/qwen_image/variant.cc src/families/qwen_image/vocabulary.cc src/families/qwen_image/weight_names.cc
    src/families/qwen_image_21/checkpoint_names.cc src/families/qwen_image_21/foreign_names.cc
    src/families/qwen_image_21/variant.cc src/families/qwen_image_21/vocabulary.cc
    src/families/qwen_image_21/weight_names.cc
  DEPENDS core files)
