#include "options.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <random>
#include <utility>

#include "core/fail.h"
#include "core/threads.h"
#include "files/numbers.h"
#include "files/text.h"
#include "model_options.h"

namespace qwen_image {
void RefuseEmptyValues(CLI::App& command, const std::set<std::string>& may_be_empty) {
  for (CLI::Option* option : command.get_options()) {
    if (may_be_empty.contains(option->get_name())) continue;
    option->check([](const std::string& value) { return value.empty() ? "the value is empty" : ""; });
  }
}

// CLI11 would read 010 as eight.
void RefuseOctal(CLI::App& command, const std::set<std::string>& names) {
  for (const std::string& name : names) {
    command.get_option(name)->check([](const std::string& value) {
      const size_t first = value.find_first_not_of("+-");
      const bool octal = first != value.npos && value[first] == '0' && first + 1 < value.size();
      return octal && value.find('.') == value.npos ? "write the number without a leading zero" : "";
    });
  }
}

std::vector<std::string> CommandLineWords(const CLI::App& app, const std::vector<std::string>& typed) {
  const CLI::App* command = &app;
  const auto takes_value = [&](const std::string& name) {
    const CLI::Option* option = command->get_option_no_throw(name);
    return option && option->get_items_expected_min() > 0;
  };
  std::vector<std::string> words;
  bool is_value = false;  // of the option before
  for (auto word = typed.begin(); word != typed.end(); ++word) {
    words.push_back(*word);
    if (std::exchange(is_value, false)) continue;
    if (*word == "--") {  // no options from here on
      words.insert(words.end(), word + 1, typed.end());
      break;
    }
    if (command == &app) {
      const auto named =
          app.get_subcommands([&](const CLI::App* other) { return other->get_name() == *word; });
      if (!named.empty()) command = named.front();
    }
    is_value = word->starts_with('-') && takes_value(*word);
    if (word->starts_with("--") && word->find('=') == word->size() - 1 &&
        takes_value(word->substr(0, word->size() - 1))) {
      words.back().pop_back();
      words.emplace_back();
    }
  }
  std::reverse(words.begin(), words.end());
  return words;
}

namespace {

constexpr const char *kPicture = "Picture", *kPrompt = "Prompt", *kMachine = "Machine",
                     *kReporting = "Reporting";

// What `generate` and `edit` share.
void AddDrawOptions(CLI::App& command, GenerateOptions& o) {
  command.add_option("prompt,--prompt", o.prompt, "What to draw")->each([&](const std::string&) {
    o.has_prompt = true;
  });
  command.add_option("-o,--output", o.output, "The picture to write (default: picture-DATE-TIME.png)");
  command.add_option("--prompts", o.prompts_file,
                     "Draw one picture for each line of this file, loading the model once");
  command.add_option("--from", o.from,
                     "Draw a picture again from the settings in its metadata; other options override them");

  AddModelOptions(command, o.files);

  command
      .add_option("-n,--negative-prompt", o.negative_prompt,
                  "What to steer away from (used when cfg > 1; default: \" \")")
      ->group(kPicture);
  command
      .add_option(
          "-s,--size", o.size,
          "WIDTHxHEIGHT in pixels, multiples of 16 or, for Qwen-Image-2.1, of 32 (default: the model's, "
          "1024x1024 for Qwen-Image)")
      ->group(kPicture);
  command.add_option("--width", o.width, "Width alone")->group(kPicture);
  command.add_option("--height", o.height, "Height alone")->group(kPicture);
  command
      .add_option("--steps", o.steps,
                  "Denoising steps (default: the model's; 50 for Qwen-Image, 40 for 2.1, 8 for its Turbo)")
      ->group(kPicture);
  command
      .add_option(
          "--sigmas", o.sigmas,
          "The noise levels to draw with instead of the model's own, falling from at most 1, without the "
          "last 0: A,B,C is three steps")
      ->group(kPicture);
  command
      .add_option(
          "--cfg", o.cfg,
          "True guidance scale; 1 switches it off and halves the time (default: the model's; 4, for 2.1 1)")
      ->group(kPicture);
  command
      .add_option("--seed", o.seed,
                  "A number, the same as torch's CPU generator, or \"random\" (also -1; default: 0)")
      ->group(kPicture);
  command
      .add_option("--count", o.count, "Draw N pictures: seed, seed+1, …, named out-001.png, out-002.png, …")
      ->check(CLI::Range(int64_t{1}, kMaxPictures))
      ->group(kPicture);
  command
      .add_option(
          "--background", o.background,
          "Lay the picture of a model that draws transparent ones on a colour: #rrggbb, or a name (white, "
          "black, …); \"transparent\" keeps it as it is (the default)")
      ->group(kPicture);
  command
      .add_option(
          "--latents", o.latents,
          "Initial noise from a .npy file, float32: packed [1,tokens,64], or latents [1,1,16,h/8,w/8] (2.1: "
          "[1,1,64,h/16,w/16])")
      ->group(kPicture);

  command
      .add_option("--max-sequence-length", o.max_sequence_length,
                  "Prompt tokens that are used, at most 1024 (default: 512); Qwen-Image-2.1 uses all of them")
      ->group(kPrompt);
  command
      .add_flag("--reference-special-tokens", o.reference_special_tokens,
                "Let <|im_start|> and the like in a prompt be control tokens, as in diffusers")
      ->group(kPrompt);

  CLI::Option* prompt_cache =
      command
          .add_option("--prompt-cache", o.prompt_cache,
                      "Where embeddings of prompts are kept for later runs, up to 256 MB (default: "
                      "qwen-image/prompts in $XDG_CACHE_HOME or ~/.cache)")
          ->group(kPrompt);
  command
      .add_flag("--no-prompt-cache", o.no_prompt_cache,
                "Neither keep embeddings of prompts nor use those of earlier runs")
      ->excludes(prompt_cache)
      ->group(kPrompt);

  AddMachineOptions(command, o.precision, o.device, o.threads, o.ignore_memory);
  command
      .add_option("--vae-tiling", o.vae_tiling,
                  "Decode in tiles to save memory: auto (above 1536x1536; 2.1: above 1152x1024), on, off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->group(kMachine);
  command
      .add_option("--step-cache", o.step_cache,
                  "Estimate steps that are expected to change the velocity by less than this share, 0 to 1: "
                  "faster, less exact (try 0.1; default: 0, off)")
      ->group(kMachine);
  command
      .add_option("--resume-dir", o.resume_dir,
                  "Keep the state after every step in this folder; the same command goes on from there if it "
                  "was killed")
      ->group(kMachine);

  command.add_flag("-q,--quiet", o.quiet, "Print errors only")->group(kReporting);
  command.add_flag("--json", o.json, "Print one JSON object per picture instead of the summary")
      ->group(kReporting);
}

// With a picture to begin with: its mask, and how much of it stays.
void AddSourceOptions(CLI::App& command, GenerateOptions& o, const char* group) {
  command
      .add_option("--mask", o.mask,
                  "Inpainting: white parts of this picture are drawn anew, the others come out unchanged")
      ->group(group);
  command
      .add_option("--outpaint", o.outpaint,
                  "Enlarge the picture by LEFT,TOP,RIGHT,BOTTOM pixels and draw what is new")
      ->group(group);
  command
      .add_option("--strength", o.strength,
                  "How far the result may leave the picture, 0 to 1 (default: 0.6; with --outpaint 1)")
      ->group(group);
  command
      .add_flag("--no-blend", o.no_blend, "With a mask: the model's picture as it is, also outside the mask")
      ->group(group);
  command
      .add_flag("--keep-size", o.keep_size,
                "Bring the result to the exact size of the picture that it is made from")
      ->group(group);
}

void CheckValues(CLI::App& command) {
  RefuseEmptyValues(command, {"--prompt", "--negative-prompt"});
  RefuseOctal(command, {"--width", "--height", "--steps", "--count", "--threads", "--max-sequence-length"});
}

}  // namespace

void AddMachineOptions(CLI::App& command, std::string& precision, std::string& device, int& threads,
                       bool& ignore_memory) {
  command
      .add_option(
          "--precision", precision,
          "How layers with quantized weights are computed. fast (the default): with inputs of 8 bits, or "
          "16 where 8 are too few; exact: in fp32, several times slower. Other layers are always exact")
      ->check(CLI::IsMember({"exact", "fast"}))
      ->group(kMachine);
  AddDeviceOption(command, device)->group(kMachine);
  command.add_option("-t,--threads", threads, "Threads (default: all processors)")
      ->check(CLI::Range(1, kMaxThreads))
      ->group(kMachine);
  command.add_flag("--ignore-memory", ignore_memory, "Try even if the model does not seem to fit in memory")
      ->group(kMachine);
}

void AddGenerateOptions(CLI::App& command, GenerateOptions& o) {
  AddDrawOptions(command, o);
  command.get_option("--prompt")->description("What to draw");
  const char* group = "Starting from a picture";
  command
      .add_option("--init-image", o.init_image,
                  "Image-to-image: begin with this picture (PNG, JPEG, WebP) instead of noise alone")
      ->group(group);
  AddSourceOptions(command, o, group);
  CheckValues(command);
  command.footer(
      "Examples:\n"
      "  qwen-image generate \"a red circle on a blue background\" -o circle.png\n"
      "  qwen-image generate \"two green stars on a white background\" --count 4 --seed 7 -o stars.png\n"
      "  qwen-image generate \"a cat\" --model ~/models/Qwen-Image-2.1-Turbo -o cat.png\n"
      "  qwen-image generate \"a cat\" --model ~/models/Qwen-Image --size 1328x1328 --steps 30\n"
      "  qwen-image generate \"a cat\" --model ~/models/Qwen-Image --transformer qwen-image-Q4_K_M.gguf\n"
      "  qwen-image generate \"a cat\" --model ~/models/Qwen-Image --lora "
      "Qwen-Image-Lightning-4steps.safetensors\n"
      "  qwen-image generate \"a green star\" --init-image circle.png --strength 0.7 -o star.png\n"
      "  qwen-image generate \"a white heart\" --init-image circle.png --mask mask.png -o heart.png\n"
      "  qwen-image generate --prompts prompts.txt -o batch.png\n"
      "  qwen-image generate --from circle.png --steps 8 -o again.png");
}

void AddEditOptions(CLI::App& command, GenerateOptions& o) {
  o.edit = true;
  const char* group = "Pictures";
  command
      .add_option("-i,--input-image", o.input_images,
                  "A picture to edit (PNG, JPEG, WebP); several for Edit-2509 and later: \"Picture 1\", "
                  "\"Picture 2\" in the prompt. The last one decides the size of the result")
      ->take_all()
      ->allow_extra_args(false)  // the next word may be the prompt
      ->group(group);
  AddSourceOptions(command, o, group);
  AddDrawOptions(command, o);
  CheckValues(command);
  command.get_option("--prompt")->description("What to change");
  command.get_option("--steps")->description(
      "Denoising steps (default: the model's; 50 for Qwen-Image-Edit, 40 for Edit-2509 and later and 2.1, 8 "
      "for its Turbo)");
  command.remove_option(command.get_option("--max-sequence-length"));  // edits use the whole prompt
  command.get_option("--size")->description(
      "WIDTHxHEIGHT in pixels, multiples of 16 or, for Qwen-Image-2.1, of 32 (default: the input's ratio at "
      "the model's area, 1024x1024)");
  command.footer(
      "Examples:\n"
      "  qwen-image edit \"make the circle green\" --input-image circle.png -o green.png\n"
      "  qwen-image edit \"make the sky red\" -i photo.jpg --model ~/models/Qwen-Image-Edit-2511 "
      "--keep-size\n"
      "  qwen-image edit \"the cat of Picture 1 on the sofa of Picture 2\" -i cat.jpg -i sofa.jpg --model "
      "~/models/Qwen-Image-Edit-2509\n"
      "  qwen-image edit \"a hat\" -i photo.jpg --mask head.png --model ~/models/Qwen-Image-Edit\n"
      "  qwen-image edit \"more of the beach\" -i photo.jpg --outpaint 256,0,256,0 --model "
      "~/models/Qwen-Image-Edit-2511");
}

void AddDebugOptions(CLI::App& app, DebugOptions& o) {
  const auto group = "Debugging";
  app.add_flag("--debug{run}", o.run_id,
               "Save the run's tensors to debug_artifacts/RUN_ID/cpp and compare them with "
               "debug_artifacts/RUN_ID/ref, if it "
               "is there; its manifest then supplies prompt and settings. Given as --debug=RUN_ID before the "
               "command")
      ->group(group);
  app.add_option("--artifacts", o.artifacts, "Another folder than debug_artifacts")->group(group);
  app.add_option("--checkpoints", o.checkpoints,
                 "How deep: boundaries, blocks (default), all, or names with '*', separated by commas")
      ->each([&](const std::string&) { o.checkpoints_given = true; })
      ->group(group);
  app.add_option(
         "--substitute", o.substitute,
         "After comparing them, go on from the reference's tensors with these names ('*' matches any text)")
      ->delimiter(',')
      ->group(group);
  app.add_option(
         "--only", o.only,
         "With --debug: run one component on the reference's inputs: vae, transformer or text_encoder")
      ->check(CLI::IsMember({"vae", "transformer", "text_encoder"}))
      ->group(group);
  app.add_flag(
         "--trace{trace.json}", o.trace,
         "Watch the run's health: range, NaN, attention entropy, time and memory of every layer, as a table "
         "and as a file for ui.perfetto.dev. Given as --trace=FILE before the command")
      ->group(group);
  app.add_flag("--list-checkpoints", o.list_checkpoints, "Print the names of all checkpoints and stop")
      ->group(group);
}

Margins ParseMargins(const std::string& text) {
  std::vector<int64_t> sides;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    const auto side = ParseWhole(rest.substr(0, comma));
    if (!side || *side > uint64_t{kHugeSide}) break;
    sides.push_back(static_cast<int64_t>(*side));
    more = comma != rest.npos;
    if (more) rest.remove_prefix(comma + 1);
    const bool any = std::any_of(sides.begin(), sides.end(), [](int64_t s) { return s > 0; });
    if (!more && sides.size() == 4 && any) return {sides[0], sides[1], sides[2], sides[3]};
  }
  Fail(ErrorKind::kUsage, "{} are no margins; write LEFT,TOP,RIGHT,BOTTOM in pixels, for example 0,64,0,64",
       Quoted(text));
}

std::vector<double> ParseSigmas(const std::string& text) {
  std::vector<double> sigmas;
  std::string_view rest = text;
  for (bool more = true; more;) {
    const size_t comma = rest.find(',');
    const auto sigma = ParseNumber(rest.substr(0, comma));
    if (!sigma)
      Fail(ErrorKind::kUsage,
           "{} are no noise levels; write numbers with commas between them, for example 1,0.9,0.5",
           Quoted(text));
    sigmas.push_back(*sigma);
    more = comma != rest.npos;
    if (more) rest.remove_prefix(comma + 1);
  }
  return sigmas;
}

std::string SigmasText(const std::vector<double>& sigmas) {
  return fmt::format("{}", fmt::join(sigmas, ","));
}

bool IsRandomSeed(const std::string& text) { return text == "random" || text == "-1"; }

uint64_t ParseSeed(const std::string& text) {
  if (IsRandomSeed(text)) return std::random_device{}();
  const auto seed = ParseWhole(text);
  if (!seed)
    Fail(ErrorKind::kUsage, "{} is not a seed; give a whole number from 0 to 2^64 - 1, or random",
         Quoted(text));
  return *seed;
}

}  // namespace qwen_image
