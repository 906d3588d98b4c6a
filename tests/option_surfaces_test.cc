// A setting that is declared in one place is on every surface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "command_line.h"
#include "draw/opened_model.h"
#include "draw/run_identity.h"
#include "generate_options.h"
#include "options/python_form.h"
#include "options/record.h"
#include "options/testing.h"
#include "qwen_image/c_api.h"
#include "server/api/job_fields.h"
#include "server/jobs/store.h"
#include "tables.h"

namespace qwen_image {
namespace {

using testing::HasSubstr;
using testing::Not;

class OptionSurfaces : public testing::Test {
 protected:
  static const Pipeline& Tiny() {
    static const Pipeline pipeline(ModelFiles(QWEN_IMAGE_SOURCE_DIR "/models/tiny"));
    return pipeline;
  }

  // The one place. It shares the member of another setting, as tests cannot add one.
  const options::ScopedField trial_{{.name = "trial_share",
                                     .member = &GenerateRequest::step_cache,
                                     .decides = options::Decides::kLatents,
                                     .recorded = options::Recorded::kIfSet,
                                     .help = "A share for a trial",
                                     .default_text = "0, none",
                                     .least = 0,
                                     .most = 1,
                                     .command_line = {.group = options::kMachineGroup, .letter = 'y'}}};
};

TEST_F(OptionSurfaces, CommandLine) {
  for (const bool edit : {false, true}) {
    for (const char* flag : {"--trial-share", "-y"}) {
      cli::GenerateOptions o;
      o.edit = edit;
      const cli::Program program{.name = "qwen-image",
                                 .commands = {{.name = "draw", .options = cli::GenerateOptionList(o)}}};
      const auto parsed = cli::ParseCommandLine(program, {"draw", "x", flag, "0.25"});
      ASSERT_TRUE(std::holds_alternative<const cli::Command*>(parsed));
      EXPECT_EQ(o.request.step_cache, 0.25);
      EXPECT_TRUE(o.Given("trial_share"));
    }
  }
  cli::GenerateOptions o;
  const cli::OptionList list = cli::GenerateOptionList(o);
  const auto found = std::find_if(
      list.begin(), list.end(), [](const cli::Option& option) { return option.names == "-y,--trial-share"; });
  ASSERT_NE(found, list.end());
  EXPECT_EQ(found->help, "A share for a trial (default: 0, none)");
  EXPECT_EQ(found->group, "Machine");
}

TEST_F(OptionSurfaces, Server) {
  EXPECT_EQ(api::ParseJobRequest({{"prompt", "x"}, {"trial_share", 0.25}}, Tiny()).request.step_cache, 0.25);
  try {
    api::ParseJobRequest({{"prompt", "x"}, {"trial_share", "much"}}, Tiny());
    ADD_FAILURE() << "not refused";
  } catch (const api::FieldError& error) {
    EXPECT_EQ(error.field(), "trial_share");
    EXPECT_EQ(error.message(), "trial_share must be a finite number, not \"much\"");
  }
}

TEST_F(OptionSurfaces, C) {
  qwen_image_request* request = nullptr;
  ASSERT_EQ(qwen_image_request_new("x", &request), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_request_set(request, "trial_share", "0.25"), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_request_set_number(request, "trial_share", 0.5), QWEN_IMAGE_OK);
  EXPECT_EQ(qwen_image_request_set(request, "trial_share", "much"), QWEN_IMAGE_USAGE);
  EXPECT_STREQ(qwen_image_last_error(), "trial_share must be a number from 0 to 1, not \"much\"");
  qwen_image_request_free(request);
  const int64_t last = qwen_image_setting_count() - 1;
  EXPECT_STREQ(qwen_image_setting_name(last), "trial_share");
  EXPECT_STREQ(qwen_image_setting_help(last), "A share for a trial");
}

TEST_F(OptionSurfaces, RecordAndIdentity) {
  GenerateRequest request{.prompt = "x", .width = 64, .height = 64, .steps = 1, .cfg = 1, .step_cache = 0.25};
  Json record;
  options::WriteRecord(request, record);
  EXPECT_EQ(record["trial_share"], 0.25);
  GenerateRequest again;
  options::NameSet given = {"step_cache"};
  options::ReadRecord(record, "here", given, again);
  EXPECT_EQ(again.step_cache, 0.25);
  const draw::Settings settings = draw::ModelOf(Tiny()).Resolve(request);
  const Model& model = *draw::ModelOf(Tiny()).model;
  const Schedule schedule = draw::ScheduleOf(model.traits().scheduler, settings);
  keep::Identities identities(model, Tiny().device(), Precision::kFast);
  EXPECT_THAT(draw::RunIdentity(identities, request, settings, schedule), HasSubstr("\"trial_share\":0.25"));
}

TEST_F(OptionSurfaces, PythonAndDocuments) {
  EXPECT_THAT(options::PythonParameters(), HasSubstr("        trial_share: float = 0.0,\n"));
  EXPECT_STREQ(qwen_image_setting_kind(qwen_image_setting_count() - 1), "number") << "as the module asks";
  EXPECT_THAT(options::OptionsTable(),
              HasSubstr("| `trial_share` | A share for a trial (default: 0, none) |"));
  EXPECT_THAT(options::ServerTable(), HasSubstr("| `trial_share` | a number from 0 to 1 |"));
  EXPECT_THAT(options::OpenAiList(), HasSubstr("`trial_share`"));
  EXPECT_THAT(options::PythonList(), HasSubstr("`trial_share`"));
  EXPECT_THAT(options::WhyNotTable(), Not(HasSubstr("trial_share")))
      << "nobody said why it should not be somewhere";
}

// A job as clients see it, and as it is found again after a restart.
TEST_F(OptionSurfaces, JobsOfTheServer) {
  jobs::Job job{.id = jobs::NewJobId(), .settings = {.prompt = "x", .step_cache = 0.25}};
  EXPECT_EQ(api::JobJson(job).at("trial_share"), 0.25);
  const jobs::Job again = jobs::ParseStoredJob(jobs::StoredJobText(job), "job.json");
  EXPECT_EQ(again.settings.step_cache, 0.25);
  for (const options::Field& field : options::Fields())
    EXPECT_EQ(api::JobJson(job).contains(field.name),
              !field.not_in.http && (!options::IsData(field) || field.name != std::string_view("latents")))
        << field.name;
}

}  // namespace
}  // namespace qwen_image
