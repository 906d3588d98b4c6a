// Changes a picture:  edit MODEL PROMPT IN.png OUT.png
#include <qwen_image/image_file.h>
#include <qwen_image/qwen_image.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: %s MODEL PROMPT IN.png OUT.png\n", argv[0]);
    return 2;
  }
  try {
    const qwen_image::Pipeline pipeline(argv[1]);
    qwen_image::GenerateRequest request;
    request.prompt = argv[2];
    request.steps = 4;
    // With its transparent parts, for models that see them.
    request.input_images = {qwen_image::ReadImage(argv[3], {}, qwen_image::Transparency::kKept).image};
    pipeline.Generate(request).SavePng(argv[4]);
  } catch (const qwen_image::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
