#include "families/qwen_image/latents.h"

#include <gtest/gtest.h>

namespace qwen_image {
namespace {

TEST(Latents, PackingPutsTwoByTwoLatentsOfEveryChannelIntoAToken) {
  const TokenGrid grid = {.height = 2, .width = 3};
  Tensor latents({1, 2, 1, 4, 6});
  for (int64_t i = 0; i < latents.size(); ++i) latents[i] = static_cast<float>(i);
  const Tensor packed = PackLatents(latents, 2, grid);
  ASSERT_EQ(packed.shape(), (Shape{1, 6, 8}));
  // Token (1, 2): rows 2 and 3, columns 4 and 5 of both channels.
  const std::vector<float> want = {2 * 6 + 4,      2 * 6 + 5,      3 * 6 + 4,      3 * 6 + 5,
                                   24 + 2 * 6 + 4, 24 + 2 * 6 + 5, 24 + 3 * 6 + 4, 24 + 3 * 6 + 5};
  EXPECT_EQ(std::vector<float>(packed.row(5), packed.row(5) + 8), want);

  const Tensor back = UnpackLatents(packed, 2, grid);
  ASSERT_EQ(back.shape(), latents.shape());
  for (int64_t i = 0; i < back.size(); ++i) ASSERT_EQ(back[i], latents[i]);
}

}  // namespace
}  // namespace qwen_image
