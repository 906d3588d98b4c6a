// What the user typed, and the parsers that turn it into a request.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device_option.h"
#include "qwen_image/qwen_image.h"

namespace CLI {
class App;
}

namespace qwen_image {

constexpr int64_t kMaxPictures = 10000;  // of one run

// What CLI11's parse() takes, which is in reverse order. It would take the word behind "--name=" for the
// value: here that value becomes a word of its own, which is empty.
std::vector<std::string> CommandLineWords(const CLI::App& app, const std::vector<std::string>& typed);

struct DebugOptions {
  std::string run_id;  // empty: off
  std::filesystem::path artifacts = "debug_artifacts";
  std::string checkpoints = "blocks";
  bool checkpoints_given = false;
  std::vector<std::string> substitute;
  std::string only;             // a component; empty: the whole pipeline
  std::filesystem::path trace;  // empty: off
  bool list_checkpoints = false;
};

// Of `generate` and of `edit`.
struct GenerateOptions {
  bool edit = false;  // the command
  std::string prompt;
  std::filesystem::path prompts_file;
  std::filesystem::path from;
  ModelFiles files;  // what was named; see FindModel
  std::filesystem::path output;
  std::optional<std::string> negative_prompt;
  std::string size;
  std::optional<int64_t> width, height;
  std::optional<int64_t> steps;
  std::string sigmas;  // "1,0.9,0.5"
  std::optional<double> cfg;
  std::string seed;
  std::filesystem::path latents;
  // Pictures to start from.
  std::vector<std::filesystem::path> input_images;  // of `edit`
  std::filesystem::path init_image, mask;
  std::string outpaint;  // "L,T,R,B"
  std::optional<double> strength;
  bool no_blend = false;
  bool keep_size = false;
  std::string background;  // empty: not said

  std::optional<int64_t> max_sequence_length;
  int64_t count = 1;
  int threads = 0;
  std::string precision;  // "exact", "fast"; empty: not said
  std::string device;     // "cpu", "gpu", "mlx-cpu"; empty: not said
  std::optional<double> step_cache;
  std::filesystem::path resume_dir;
  std::string vae_tiling;  // "auto", "on", "off"; empty: not said
  bool reference_special_tokens = false;
  std::filesystem::path prompt_cache;  // empty: the user's cache folder
  bool no_prompt_cache = false;
  bool ignore_memory = false;
  bool quiet = false;
  bool json = false;
  bool has_prompt = false;  // also an empty one

  Precision PrecisionInUse() const { return PrecisionOf(precision, device); }
  int64_t MaxSequenceLength() const {
    return max_sequence_length.value_or(GenerateRequest().max_sequence_length);
  }
};

// Declare the options of `generate` and of `edit`; they are filled in when the app parses.
void AddGenerateOptions(CLI::App& command, GenerateOptions& options);
void AddEditOptions(CLI::App& command, GenerateOptions& options);
// What `serve` shares with them, in the group "Machine".
void AddMachineOptions(CLI::App& command, std::string& precision, std::string& device, int& threads,
                       bool& ignore_memory);
void AddDebugOptions(CLI::App& app, DebugOptions& options);
// An empty value is a script's variable that was never set; CLI11 would take it for "not given".
void RefuseEmptyValues(CLI::App& command, const std::set<std::string>& may_be_empty);

// "0,64,0,64" → left, top, right, bottom. Throws Error kUsage.
Margins ParseMargins(const std::string& text);
// "1,0.9,0.5". Throws Error kUsage if these are no numbers; which ones are possible the pipeline knows.
std::vector<double> ParseSigmas(const std::string& text);
std::string SigmasText(const std::vector<double>& sigmas);  // the same the other way
bool IsRandomSeed(const std::string& text);                 // "random", "-1"
// "42", or "random". Throws Error kUsage.
uint64_t ParseSeed(const std::string& text);

}  // namespace qwen_image
