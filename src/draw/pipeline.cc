// The public face: opening a model, what can be asked of it, and a drawing's numbered steps.
#include "core/fail.h"
#include "device/available.h"
#include "draw/drawing.h"
#include "draw/memory_check.h"
#include "draw/opened_model.h"
#include "draw/run_identity.h"
#include "draw/workbench.h"
#include "families/family.h"
#include "qwen_image/instruction_set.h"
#include "team/facts.h"
#include "team/team_model.h"
#include "weights/model_name.h"

namespace qwen_image::draw {

namespace {

// Several machines open the same one.
std::unique_ptr<const Model> OpenModel(const ModelParts& parts, const ModelFiles& files,
                                       const ModelOptions& options, const PipelineOptions& asked) {
  std::unique_ptr<const Model> model = FamilyFor(parts).Open(parts, files, options);
  // Opening reads small tensors here and there; the pages around them are not needed before their stage.
  model->ReleasePages();
  if (!asked.machines) return model;
  if (options.device != Device::kCpu)
    Fail(ErrorKind::kUsage, "several machines draw a picture with their CPUs only; ask for the device cpu");
  return team::ShareModel(std::move(model),
                          {files, options, asked.threads, InstructionSetInUse(), asked.split},
                          asked.machines->session());
}

int ThreadCount(const PipelineOptions& options) {
  if (options.threads > 0) return options.threads;
  return options.machines ? team::ThreadsHere(options.machines->session()) : DefaultThreadCount();
}

}  // namespace

OpenedModel::OpenedModel(const ModelParts& parts, const ModelFiles& files, const PipelineOptions& options)
    : name(ModelName(files)),
      check_memory(options.check_memory),
      precision(options.precision),
      device(device::ResolveDevice(options.device)),
      machines(options.machines),
      model(OpenModel(parts, files, {.precision = precision, .device = device, .check_memory = check_memory},
                      options)) {}

Workbench::Workbench(const OpenedModel& model, const PipelineOptions& options)
    : pool(ThreadCount(options)),
      prompts(options.prompt_cache),
      identities(*model.model, model.device, model.precision) {}

const OpenedModel& ModelOf(const Pipeline& pipeline) { return PipelineAccess::ImplOf(pipeline).model; }

}  // namespace qwen_image::draw

namespace qwen_image {

Pipeline::Pipeline(const ModelFiles& model, const PipelineOptions& options) {
  CheckThreadCount(options.threads);
  const ModelParts parts = FindModelParts(model);
  const bool holds_all = !options.machines || options.split != Split::kLayers;
  if (options.check_memory && holds_all) draw::CheckWeightsFit(parts);
  impl_ = std::make_unique<Impl>(parts, model, options);
}

Pipeline::~Pipeline() = default;
Pipeline::Pipeline(Pipeline&&) noexcept = default;
Pipeline& Pipeline::operator=(Pipeline&&) noexcept = default;

const Defaults& Pipeline::defaults() const { return impl_->model.model->traits().defaults; }
const std::string& Pipeline::variant() const { return impl_->model.model->variant(); }
bool Pipeline::edits() const { return impl_->model.model->edits(); }
int64_t Pipeline::channels() const { return impl_->model.geometry().pixel_channels; }
int64_t Pipeline::side_multiple() const { return impl_->model.geometry().side_multiple; }
Device Pipeline::device() const { return impl_->model.device; }
const std::vector<AppliedLora>& Pipeline::loras() const { return impl_->model.model->loras().applied(); }
int Pipeline::threads() const { return impl_->bench.pool.size(); }

void Pipeline::Check(const GenerateRequest& request) const {
  const draw::OpenedModel& model = impl_->model;
  const draw::Settings settings = model.Resolve(request);
  const Conditioner& conditioner = model.model->conditioner();
  if (!settings.references.empty()) {
    conditioner.NeedVision();  // it may not be there
  } else {
    // Throws for a prompt that the model cannot take. An edit's can be checked only with its pictures.
    const PromptOptions options{.max_sequence_length = request.max_sequence_length,
                                .parse_special_tokens = request.reference_special_tokens};
    conditioner.Tokenize(request.prompt, {}, options);
    if (settings.guided()) conditioner.Tokenize(settings.negative_prompt, {}, options);
  }
  if (model.check_memory) draw::CheckWorkspaceFits(*model.model, request, settings);
}

Picture Pipeline::Generate(const GenerateRequest& request, const GenerateHooks& hooks) const {
  draw::Drawing drawing(impl_->model, impl_->bench, request, hooks);  // 1. checks it, and waits for its turn
  drawing.EncodePrompts();                                            // 2
  drawing.EncodePictures();                                           // 3
  drawing.Begin();                                                    // 4 and 5
  drawing.Denoise();                                                  // 6
  drawing.Decode();                                                   // 7
  return drawing.Finish();                                            // 8
}

std::string Pipeline::RunId(const GenerateRequest& request) const {
  const draw::Turns::Turn turn(impl_->bench.turns);
  return draw::RunId(impl_->bench.identities, request);
}

}  // namespace qwen_image
