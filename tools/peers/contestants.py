"""How programs and their variants are called in the measurements and on the pages."""

ENGINE, SDCPP, DIFFUSERS, OPENVINO = "qwen-image.cpp", "stable-diffusion.cpp", "diffusers", "OpenVINO"
BEFORE = "qwen-image.cpp, an older one"
FAST, EXACT_BF16 = "4-bit, fast", "bf16, exact"
FAST_OUTLIERS, ROTATED = "4-bit with outliers, fast", "int8 ConvRot, fast"
