// Against the official scheduler: tests/goldens/scheduler.json holds its sigmas and timesteps.
#include "model/scheduler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "files/json.h"
#include "files/testing.h"
#include "qwen_image/error.h"

namespace qwen_image {
namespace {

class SchedulerTest : public testing::Test {
 protected:
  SchedulerConfig Read(const Json& config) const {
    std::ofstream(folder_.path() / "scheduler_config.json") << config.dump();
    return ReadSchedulerConfig(folder_.path());
  }

  const TempFolder folder_;
};

TEST_F(SchedulerTest, GivesTheOfficialSigmasAndTimesteps) {
  const Json goldens = ReadJsonFile(QWEN_IMAGE_SOURCE_DIR "/tests/goldens/scheduler.json");
  SchedulerConfig config;
  int compared = 0;
  for (const Json& row : goldens.at("rows")) {
    if (row.contains("scheduler_config")) {
      config = Read(row["scheduler_config"]);
      continue;
    }
    const std::string what = row.at("config").get<std::string>() + ", " + row.at("steps").dump() +
                             " steps, " + row.at("image_seq_len").dump() + " tokens";
    const Schedule schedule = MakeSchedule(config, row["steps"], row["image_seq_len"]);
    ASSERT_EQ(schedule.sigmas.size(), row.at("sigmas").size()) << what;
    ASSERT_EQ(schedule.timesteps.size(), row.at("timesteps").size()) << what;
    for (size_t i = 0; i < schedule.sigmas.size(); ++i) {
      EXPECT_NEAR(schedule.sigmas[i], row["sigmas"][i].get<float>(), 1e-6) << what << ", sigma " << i;
    }
    for (size_t i = 0; i < schedule.timesteps.size(); ++i) {
      const float want = row["timesteps"][i];
      EXPECT_NEAR(schedule.timesteps[i], want, 1e-6 * 1000) << what << ", timestep " << i;
    }
    ++compared;
  }
  EXPECT_GT(compared, 100);
}

TEST_F(SchedulerTest, OneStepGoesFromNoiseToThePictureAtOnce) {
  const SchedulerConfig config = Read({{"use_dynamic_shifting", true}, {"shift_terminal", 0.02}});
  const Schedule schedule = MakeSchedule(config, 1, 64);
  EXPECT_EQ(schedule.sigmas, (std::vector<float>{1.0f, 0.0f}));
  EXPECT_EQ(schedule.timesteps, (std::vector<float>{1000.0f}));
}

TEST_F(SchedulerTest, RefusesWhatItCannotCompute) {
  for (const Json& config :
       {Json{{"invert_sigmas", true}}, Json{{"use_karras_sigmas", true}}, Json{{"stochastic_sampling", true}},
        Json{{"_class_name", "DDIMScheduler"}}, Json{{"time_shift_type", "cubic"}}, Json{{"shift", 0}},
        Json{{"shift_terminal", 1.5}}, Json{{"base_image_seq_len", 4096}}, Json{{"shift", "much"}}}) {
    EXPECT_THROW(Read(config), Error) << config.dump();
  }
  EXPECT_THROW(MakeSchedule(Read(Json::object()), 0, 64), Error);
}

TEST(EulerStep, MovesAlongTheVelocity) {
  const Schedule schedule{.sigmas = {1.0f, 0.25f, 0.0f}, .timesteps = {1000.0f, 250.0f}};
  Tensor latents({1, 1, 2}), velocity({1, 1, 2});
  latents[0] = 1.0f;
  latents[1] = -2.0f;
  velocity[0] = 4.0f;
  velocity[1] = 8.0f;
  EulerStep(schedule, 0, velocity, latents);
  EXPECT_EQ(latents[0], -2.0f);
  EXPECT_EQ(latents[1], -8.0f);
  EulerStep(schedule, 1, velocity, latents);
  EXPECT_EQ(latents[0], -3.0f);
}

}  // namespace
}  // namespace qwen_image
