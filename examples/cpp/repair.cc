// Draws the white part of a mask anew:  repair MODEL PROMPT IN.png MASK.png OUT.png
// Ctrl-C stops it after the step that it is at.
#include <qwen_image/cancel.h>
#include <qwen_image/image_file.h>
#include <qwen_image/qwen_image.h>

#include <csignal>
#include <cstdio>

static qwen_image::CancelFlag stop;

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fprintf(stderr, "usage: %s MODEL PROMPT IN.png MASK.png OUT.png\n", argv[0]);
    return 2;
  }
  std::signal(SIGINT, [](int) { stop.Cancel(); });
  try {
    const qwen_image::Pipeline pipeline(argv[1]);
    qwen_image::GenerateRequest request;
    request.prompt = argv[2];
    request.steps = 4;
    request.strength = 1.0;  // below 1 more of what was there shines through
    request.init_image = qwen_image::ReadImage(argv[3], {}, qwen_image::Transparency::kKept).image;
    request.mask = qwen_image::ReadMask(argv[4]).image;
    qwen_image::GenerateHooks hooks;
    hooks.cancel = &stop;
    hooks.on_progress = [](const qwen_image::Progress& progress) {
      std::fprintf(stderr, "\rstep %d of %d", static_cast<int>(progress.step),
                   static_cast<int>(progress.steps));
    };
    hooks.on_note = [](const std::string& note) { std::fprintf(stderr, "\n%s\n", note.c_str()); };
    const qwen_image::Picture picture = pipeline.Generate(request, hooks);
    picture.SavePng(argv[5]);
    std::printf("\n%s: %.1f s\n", argv[5], picture.seconds.denoise);
  } catch (const qwen_image::Error& error) {
    std::fprintf(stderr, "\n%s\n", error.what());
    return error.kind() == qwen_image::ErrorKind::kInterrupted ? 130 : 1;
  }
}
