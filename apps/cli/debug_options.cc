#include "debug_options.h"

namespace qwen_image::cli {

OptionList DebugOptionList(DebugOptions& o) {
  const char* group = "Debugging";
  return {
      {.names = "--debug{run}",
       .target = &o.run_id,
       .help = "Save the run's tensors to debug_artifacts/RUN_ID/cpp and compare them with "
               "debug_artifacts/RUN_ID/ref, if it is there; its manifest then supplies prompt and settings. "
               "Given as "
               "--debug=RUN_ID before the command",
       .group = group,
       .may_be_empty = true},
      {.names = "--artifacts",
       .target = &o.artifacts,
       .help = "Another folder than debug_artifacts",
       .group = group,
       .may_be_empty = true},
      {.names = "--checkpoints",
       .target = &o.checkpoints,
       .help = "How deep: boundaries, blocks (default), all, or names with '*', separated by commas",
       .group = group},
      {.names = "--substitute",
       .target = &o.substitute,
       .help =
           "After comparing them, go on from the reference's tensors with these names ('*' matches any text)",
       .group = group,
       .may_be_empty = true,
       .comma_separated = true},
      {.names = "--only",
       .target = &o.only,
       .help = "With --debug: run one component on the reference's inputs: vae, transformer or text_encoder",
       .group = group,
       .one_of = {"vae", "transformer", "text_encoder"}},
      {.names = "--trace{trace.json}",
       .target = &o.trace,
       .help = "Watch the run's health: range, NaN, attention entropy, time and memory of every layer, as a "
               "table and "
               "as a file for ui.perfetto.dev. Given as --trace=FILE before the command",
       .group = group,
       .may_be_empty = true},
      {.names = "--list-checkpoints",
       .target = &o.list_checkpoints,
       .help = "Print the names of all checkpoints and stop",
       .group = group},
  };
}

}  // namespace qwen_image::cli
