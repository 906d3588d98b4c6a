// qwen-image.cpp: pictures from text, and from pictures and text, with the Qwen-Image models, on plain CPUs.
//
//   qwen_image::Pipeline pipeline("models/tiny");
//   qwen_image::GenerateRequest request;
//   request.prompt = "a red circle on a blue background";
//   qwen_image::Picture picture = pipeline.Generate(request);
//   picture.SavePng("circle.png");
//
//   request.prompt = "make the circle green";
//   request.input_images = {picture.image()};
//   qwen_image::Picture edited = pipeline.Generate(request);
//
// Every function throws qwen_image::Error and nothing else. Nothing is printed.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "qwen_image/cancel.h"
#include "qwen_image/error.h"
#include "qwen_image/export.h"
#include "qwen_image/image.h"
#include "qwen_image/machines.h"
#include "qwen_image/model_files.h"

namespace qwen_image {

class CheckpointSink;
class Profile;

// What the model's folder suggests (qwen_image.json), or the official pipeline's defaults.
struct Defaults {
  int64_t width = 1024;
  int64_t height = 1024;
  int64_t steps = 50;
  double cfg = 4.0;
  std::string negative_prompt = " ";
  bool lightning = false;  // steps, cfg and the noise levels are those of a Lightning LoRA
};

// Pixels that are added to the sides of a picture.
struct Margins {
  int64_t left = 0, top = 0, right = 0, bottom = 0;

  bool any() const { return left != 0 || top != 0 || right != 0 || bottom != 0; }
};

struct InitialLatents {
  std::vector<int64_t> shape;  // packed [1, tokens, 64], or [1, 1, 16, h / 8, w / 8]
  std::vector<float> values;
};

struct GenerateRequest {
  std::string prompt;
  // What is not set comes from the pipeline's defaults.
  std::optional<std::string> negative_prompt;
  std::optional<int64_t> width, height;  // multiples of 16; of Qwen-Image-2.1: of 32
  std::optional<int64_t> steps;
  // The noise levels to draw with, falling, without the last 0; their number is the number of steps. As in
  // diffusers, a model whose noise levels depend on the size still shifts them. Empty: the model's own.
  std::vector<double> sigmas;
  std::optional<double> cfg;  // true classifier-free guidance; 1 switches it off and halves the time
  uint64_t seed = 0;
  std::optional<InitialLatents> latents;  // instead of the seed's noise

  // Pictures are RGB or RGBA; models without alpha (channels()) lay transparent parts on white.
  // Editing: the pictures that the prompt speaks of. Only models made for it can do that (edits()).
  std::vector<Image> input_images;
  // A picture to begin with instead of noise alone (image-to-image).
  std::optional<Image> init_image;
  // White (128 and more) is redrawn, the rest stays: of init_image, or of the one input image. Another
  // size than the picture's is brought to it.
  std::optional<GreyImage> mask;
  // The picture is enlarged by these margins, which are drawn.
  Margins outpaint;
  // With init_image, a mask or margins: how much of the way from noise is taken, 0 to 1. Small values keep
  // more of the picture. Default: 0.6, as in diffusers; with margins 1.
  std::optional<double> strength;
  bool blend = true;       // with a mask: what is not redrawn keeps the bits of the input
  bool keep_size = false;  // the result gets the size of the picture that it is made from
  // The colour that the result is laid on: "#rrggbb", or a name of CSS's basic colours ("white", "black", …).
  // Empty, or "transparent": transparent parts stay. Models without alpha draw none and refuse "transparent".
  std::string background;

  int64_t max_sequence_length = 512;  // prompt tokens that are used
  bool reference_special_tokens =
      false;  // "<|im_start|>" in a prompt becomes a control token, as in diffusers
  enum class Tiling { kAuto, kOn, kOff } vae_tiling = Tiling::kAuto;
  // Above 0: steps whose velocity is expected to change less than this share since the last computed one are
  // estimated instead. Faster and less exact; 0.1 is a good value, 0 switches it off.
  double step_cache = 0;
  // A folder where the state after every step is kept, and looked for at the start, so that a run that was
  // killed goes on; empty: none. A state is named by everything that decides the picture, so any number
  // of runs can share a folder. See RemoveResumeState.
  std::filesystem::path resume_folder = {};
};

struct Progress {
  enum class Stage { kEncodePrompt, kEncodePictures, kDenoise, kDecode } stage = Stage::kEncodePrompt;
  int64_t step = 0;     // finished steps of kDenoise
  int64_t steps = 0;    // of kDenoise
  double fraction = 0;  // of the current step, or of the stage
  int64_t resumed = 0;  // steps that an earlier run finished (GenerateRequest::resume_folder)
};

struct StageSeconds {
  double encode_prompt = 0, encode_pictures = 0, denoise = 0, decode = 0;
};

// How a result lies over the picture that it was made from, brought to its size: a point at (x, y) from the
// centre is at (x · (1 + scale_x / 100) + shift_x, y · (1 + scale_y / 100) + shift_y).
struct Alignment {
  // False if too little of the picture is left to tell, or if it has no edges that would show a shift. The
  // numbers below mean nothing then.
  bool measurable = false;
  double shift_x = 0, shift_y = 0;  // pixels of the result; positive: to the right, down
  double scale_x = 0, scale_y = 0;  // per cent; positive: enlarged
  double confidence = 0;            // correlation of the edges after all this is undone, 0 … 1
  double uncertainty = 0;  // how far two halves of the picture disagree about the above: pixels of the result
};

// What became of the picture that an edit began with.
struct SourceReport {
  int64_t input_width = 0, input_height = 0;        // as given
  int64_t enlarged_width = 0, enlarged_height = 0;  // with margins
  int64_t working_width = 0, working_height = 0;    // as the models saw it
  // How much wider (+) or narrower (-) things became because sides are rounded, in per cent. 0 for an edit
  // whose size was asked for: the model redraws all of it then.
  double stretch_percent = 0;
  Alignment alignment;  // of what the model drew, before it is laid over the input
};

struct Picture {
  int64_t width = 0, height = 0;
  int64_t channels = 3;         // 3: RGB; 4: RGBA, whose colours are not multiplied by alpha
  std::vector<uint8_t> pixels;  // [height, width, channels]
  Image image() const { return {width, height, pixels, channels}; }
  // The request with every default filled in, for the record.
  std::string prompt, negative_prompt;
  int64_t steps = 0;      // as asked for; with a strength below 1 …
  int64_t steps_run = 0;  // … fewer are run, those of `steps_resumed` not among them
  double cfg = 1;
  uint64_t seed = 0;
  std::optional<double> strength;
  std::optional<SourceReport> source;
  int64_t prompt_tokens = 0;
  bool prompt_truncated = false;
  bool prompt_from_cache = false;     // all embeddings were computed before; the text encoder did not run
  int64_t steps_resumed = 0;          // finished by an earlier run
  int64_t steps_estimated = 0;        // by the step cache, those of the earlier run included
  std::filesystem::path resume_file;  // the run's state; see RemoveResumeState
  StageSeconds seconds;
  std::vector<std::string> notes;  // what a user should know though it is no error; see on_note
  // The settings, for the metadata of a PNG (WritePng, EncodePng): with them `qwen-image generate --from`
  // draws the picture again. The pictures that it was made from are not in it.
  std::map<std::string, std::string> png_text;

  // With its settings. Never leaves a partial file. Throws Error kCannotWrite.
  QWEN_IMAGE_API void SavePng(const std::filesystem::path& path) const;
};

// When the picture is safe (or not wanted any more): removes its run's state, if there is one.
QWEN_IMAGE_API void RemoveResumeState(const Picture& picture);

struct GenerateHooks {
  std::function<void(const Progress&)> on_progress;  // called on the generating thread
  // After every step but the last: what the picture is going to be, with its channels, at most 256 pixels
  // wide and high. Each costs the decoding of so small a picture.
  std::function<void(const Image&)> on_preview = {};
  const CancelFlag* cancel = nullptr;     // looked at between blocks; stops with ErrorKind::kInterrupted
  CheckpointSink* checkpoints = nullptr;  // sees, and may change, every intermediate tensor
  std::function<void(const std::string&)> on_note;  // what a user should know though it is no error
  // Called again and again while another thread draws with the pipeline. What it throws ends the waiting.
  std::function<void()> on_wait = {};
  Profile* profile = nullptr;  // what takes how long is added to it; on the CPU
};

// How linear layers with quantized weights are computed: with activations in single precision, or in 8 bits
// (16 where 8 are measured to be too few), which is several times as fast. Weights that are not quantized are
// always computed in single precision.
enum class Precision { kExact, kFast };

// Where the stages are computed: by this library's own kernels, or by MLX (in builds with it) on a GPU or,
// for comparisons, on the CPU. kAuto: on a GPU where MLX finds one.
enum class Device { kAuto, kCpu, kGpu, kMlxCpu };

struct PipelineOptions {
  int threads = 0;           // 1 to 1024; 0: all processors this process may use
  bool check_memory = true;  // refuse a model that does not fit before reading it
  Precision precision = Precision::kFast;
  Device device = Device::kAuto;
  // A folder where prompt embeddings are kept for later processes; empty: none. What cannot be read or
  // written there is computed again. Within a process each prompt is encoded once in any case.
  std::filesystem::path prompt_cache = {};
  // That draw together; null: this one alone. See qwen_image/machines.h.
  std::shared_ptr<Machines> machines = {};
  Split split = Split::kSequence;  // of the work among them
};

namespace draw {
struct PipelineAccess;  // the library's own
}

// A loaded model. Any thread may use it, but it draws one picture at a time: others wait. All processors work
// on that one; a callback cannot draw with the pipeline that calls it.
class QWEN_IMAGE_API Pipeline {
 public:
  explicit Pipeline(const ModelFiles& model, const PipelineOptions& options = {});
  ~Pipeline();
  Pipeline(Pipeline&&) noexcept;
  Pipeline& operator=(Pipeline&&) noexcept;

  const Defaults& defaults() const;
  // "qwen-image", "edit", "edit-2509", "edit-2511", "2.1", "2.1-turbo"; empty where the files do not tell.
  const std::string& variant() const;
  bool edits() const;  // it can edit pictures (GenerateRequest::input_images)
  // Of the pictures that it draws: 3, RGB, or 4, RGBA (unless a background is asked for).
  int64_t channels() const;
  int64_t side_multiple() const;  // width and height must be multiples of it
  Device device() const;          // where the stages are computed; never kAuto
  const std::vector<AppliedLora>& loras() const;
  int threads() const;

  // Throws ErrorKind::kUsage for a request that cannot be drawn; cheap, does not compute.
  void Check(const GenerateRequest& request) const;
  Picture Generate(const GenerateRequest& request, const GenerateHooks& hooks = {}) const;
  // A hash of all that decides the picture: engine, weights, settings. Two requests with the same id draw the
  // same pixels.
  std::string RunId(const GenerateRequest& request) const;

  struct QWEN_IMAGE_HIDDEN Impl;  // the library's own

 private:
  friend struct draw::PipelineAccess;
  std::unique_ptr<Impl> impl_;
};

QWEN_IMAGE_API const char* Version();

}  // namespace qwen_image
