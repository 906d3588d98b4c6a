// Loading a model and what can be asked of it.
#include "families/family.h"
#include "pipeline/memory_check.h"
#include "pipeline/pipeline_impl.h"
#include "weights/model_name.h"

namespace qwen_image {

Pipeline::Impl::Impl(const ModelParts& parts, const ModelFiles& files, const PipelineOptions& options)
    : name(ModelName(files)),
      check_memory(options.check_memory),
      precision(options.precision),
      device(ResolveDevice(options.device)),
      model(FamilyFor(parts).Open(parts, files,
                                  {.precision = precision, .device = device, .check_memory = check_memory})),
      pool(options.threads > 0 ? options.threads : DefaultThreadCount()),
      prompts(options.prompt_cache) {
  // Opening reads small tensors here and there; the pages around them are not needed before their stage.
  model->ReleasePages();
}

Pipeline::Pipeline(const ModelFiles& model, const PipelineOptions& options) {
  CheckThreadCount(options.threads);
  const ModelParts parts = FindModelParts(model);
  if (options.check_memory) CheckWeightsFit(parts);
  impl_ = std::make_unique<Impl>(parts, model, options);
}

Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

const Defaults& Pipeline::defaults() const { return impl_->model->traits().defaults; }
const std::string& Pipeline::variant() const { return impl_->model->variant(); }
bool Pipeline::edits() const { return impl_->model->edits(); }
int64_t Pipeline::channels() const { return impl_->geometry().pixel_channels; }
const std::vector<AppliedLora>& Pipeline::loras() const { return impl_->model->loras().applied(); }
int Pipeline::threads() const { return impl_->pool.size(); }

void Pipeline::Check(const GenerateRequest& request) const {
  const Settings settings = impl_->Resolve(request);
  const Conditioner& conditioner = impl_->model->conditioner();
  if (!settings.references.empty()) {
    conditioner.NeedVision();  // it may not be there
  } else {
    // A prompt that the model cannot take. That of an edit is known with its pictures alone.
    const PromptOptions options{.max_sequence_length = request.max_sequence_length,
                                .parse_special_tokens = request.reference_special_tokens};
    conditioner.Tokenize(request.prompt, {}, options);
    if (settings.guided()) conditioner.Tokenize(settings.negative_prompt, {}, options);
  }
  if (impl_->check_memory) CheckWorkspaceFits(*impl_, request, settings);
}

const char* Version() { return QWEN_IMAGE_VERSION; }

}  // namespace qwen_image
