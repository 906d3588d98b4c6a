// Every operation on MLX against the CPU's.
#include "mlx/operations.h"

#include <gtest/gtest.h>

#include "ops/testing.h"

namespace qwen_image::on_mlx {
namespace {

using testing::OpCase;
using testing::TestLayers;

constexpr double kOperation = 1e-10;  // NMSE

std::vector<Tensor> RunCase(const OpCase& c, Backend& backend, CheckpointSink* sink) {
  ThreadPool pool(2);
  const CancelFlag never;
  const Compute compute{pool, never};
  const std::unique_ptr<Ops> ops = backend.Start(compute);
  std::vector<Tensor> results;
  ops->Run([&] { results = c.run(*ops, sink ? Tap(sink) : Tap()); });
  return results;
}

class Heard : public CheckpointSink {
 public:
  bool Wants(std::string_view) const override { return true; }
  void OnCheckpoint(const std::string& name, const CheckpointView& view) override {
    shapes[name] = view.shape;
  }
  std::map<std::string, Shape> shapes;
};

std::vector<float> ValuesOf(const Tensor& x) { return {x.data(), x.data() + x.size()}; }

TEST(MlxOperations, AreTheCpusOperations) {
  for (const TestLayers::Kind kind : {TestLayers::Kind::kPlain, TestLayers::Kind::kPlainWithLora}) {
    TestLayers layers(kind);
    for (const OpCase& c : OpCases(layers)) {
      SCOPED_TRACE(c.name);
      MlxBackend mlx(Placement{mx::Device::cpu});
      Heard on_cpu, on_mlx;
      const std::vector<Tensor> want = RunCase(c, *CpuBackend(), &on_cpu);
      for (CheckpointSink* sink : std::vector<CheckpointSink*>{nullptr, &on_mlx}) {
        const std::vector<Tensor> got = RunCase(c, mlx, sink);
        ASSERT_EQ(got.size(), want.size());
        for (size_t i = 0; i < want.size(); ++i) {
          EXPECT_EQ(got[i].shape(), want[i].shape());
          EXPECT_LE(testing::Nmse(ValuesOf(got[i]), ValuesOf(want[i])), kOperation) << "result " << i;
        }
      }
      EXPECT_EQ(on_mlx.shapes, on_cpu.shapes) << "checkpoints and their shapes";
    }
  }
}

}  // namespace
}  // namespace qwen_image::on_mlx
