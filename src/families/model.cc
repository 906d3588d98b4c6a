#include "families/model.h"

#include "weights/model_defaults.h"

namespace qwen_image {

Defaults WithOwn(Defaults official, const ModelDefaults& own) {
  official.width = own.width.value_or(official.width);
  official.height = own.height.value_or(official.height);
  official.steps = own.steps.value_or(official.steps);
  official.cfg = own.cfg.value_or(official.cfg);
  official.negative_prompt = own.negative_prompt.value_or(official.negative_prompt);
  return official;
}

}  // namespace qwen_image
