// Draws a picture:  generate MODEL PROMPT OUT.png
#include <qwen_image/qwen_image.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s MODEL PROMPT OUT.png\n", argv[0]);
    return 2;
  }
  try {
    const qwen_image::Pipeline pipeline(argv[1]);
    qwen_image::GenerateRequest request;
    request.prompt = argv[2];
    request.seed = 7;
    request.steps = 4;
    qwen_image::GenerateHooks hooks;
    hooks.on_progress = [](const qwen_image::Progress& progress) {
      std::fprintf(stderr, "\rstep %d of %d", static_cast<int>(progress.step),
                   static_cast<int>(progress.steps));
    };
    const qwen_image::Picture picture = pipeline.Generate(request, hooks);
    picture.SavePng(argv[3]);  // with its settings, for `qwen-image generate --from`
    std::printf("\n%s: %dx%d, seed %llu\n", argv[3], static_cast<int>(picture.width),
                static_cast<int>(picture.height), static_cast<unsigned long long>(picture.seed));
  } catch (const qwen_image::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
