# Families as a whole: above their components and the devices that these run on, below the pipeline.
qwen_image_library(models
  SOURCES src/families/families.cc src/families/qwen_image/autoencoder.cc src/families/qwen_image/conditioner.cc
    src/families/qwen_image/config_files.cc src/families/qwen_image/defaults.cc src/families/qwen_image/denoiser.cc
    src/families/qwen_image/edit_model.cc src/families/qwen_image/edit_sizes.cc src/families/qwen_image/family.cc
    src/families/qwen_image/memory.cc src/families/qwen_image/model.cc src/families/qwen_image/parts_fit.cc
  DEPENDS core files kernels vocabulary weights model families mlx
  TESTS src/families/qwen_image/edit_sizes_test.cc)
