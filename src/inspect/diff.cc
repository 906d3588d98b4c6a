#include "inspect/diff.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/fail.h"
#include "inspect/weights.h"
#include "weights/names.h"

namespace qwen_image::inspect {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kChunkValues = int64_t{1} << 20;

using Components = std::vector<InspectedComponent>;

struct ErrorSums {
  double error_squares = 0, a_squares = 0, b_squares = 0, product = 0;
  double max_abs = 0;
  int64_t worst = -1;
  double worst_a = 0, worst_b = 0;

  void Add(const double* a, const double* b, int64_t count, int64_t first) {
    for (int64_t i = 0; i < count; ++i) {
      const bool both_nan = std::isnan(a[i]) && std::isnan(b[i]);
      const double error =
          a[i] == b[i] || both_nan ? 0.0 : std::abs(b[i] - a[i]);  // equal infinities differ by 0
      // A NaN stays the worst, whatever comes after it.
      if (!(error <= max_abs) && !std::isnan(max_abs)) {
        max_abs = std::isfinite(error) ? error : kNan;
        worst = first + i;
        worst_a = a[i];
        worst_b = b[i];
      }
      error_squares += error * error;
      if (!std::isfinite(a[i]) || !std::isfinite(b[i])) continue;
      a_squares += a[i] * a[i];
      b_squares += b[i] * b[i];
      product += a[i] * b[i];
    }
  }

  void Merge(const ErrorSums& other) {
    error_squares += other.error_squares;
    a_squares += other.a_squares;
    b_squares += other.b_squares;
    product += other.product;
    if (!(other.max_abs <= max_abs) && !std::isnan(max_abs)) {
      max_abs = other.max_abs;
      worst = other.worst;
      worst_a = other.worst_a;
      worst_b = other.worst_b;
    }
  }

  void WriteTo(TensorDifference& d) const {
    d.max_abs = max_abs;
    d.worst = worst;
    d.worst_a = worst_a;
    d.worst_b = worst_b;
    const double squares = std::sqrt(a_squares) * std::sqrt(b_squares);
    d.nmse = std::isnan(max_abs) ? kNan : a_squares > 0 ? error_squares / a_squares : error_squares;
    d.cosine = std::isnan(max_abs)  ? kNan
               : squares > 0        ? std::clamp(product / squares, -1.0, 1.0)
               : error_squares == 0 ? 1.0
                                    : 0.0;
  }
};

// Packed weights whose shape can be read in several ways are read in the way that gives the other side's
// shape.
void FitPackedShape(InspectedTensor& tensor, const Shape& wanted) {
  tensor.weight->ChooseQuantizationFor(wanted);
  tensor.shape = tensor.weight->shape();
  tensor.format = tensor.weight->Format();
}

struct Pair {
  InspectedComponent* a;
  InspectedComponent* b;
};

size_t CommonNames(const InspectedComponent& a, const InspectedComponent& b) {
  return static_cast<size_t>(std::count_if(a.tensors.begin(), a.tensors.end(), [&](const InspectedTensor& t) {
    return b.Find(t.name) != nullptr;
  }));
}

// Components of one name belong together; where a single one is left on one side, it belongs to the other
// side's that has most names in common with it.
std::vector<Pair> PairComponents(Components& a, Components& b, WeightDiff& diff) {
  std::vector<Pair> pairs;
  std::vector<InspectedComponent*> rest_a, rest_b;
  for (InspectedComponent& component : b) rest_b.push_back(&component);
  for (InspectedComponent& component : a) {
    const auto same = std::find_if(rest_b.begin(), rest_b.end(), [&](const InspectedComponent* other) {
      return other->name == component.name;
    });
    if (same == rest_b.end()) {
      rest_a.push_back(&component);
    } else {
      pairs.push_back({&component, *same});
      rest_b.erase(same);
    }
  }
  if (pairs.empty() && (rest_a.size() == 1 || rest_b.size() == 1)) {
    Pair best{rest_a[0], rest_b[0]};
    for (InspectedComponent* one : rest_a) {
      for (InspectedComponent* other : rest_b) {
        if (CommonNames(*one, *other) > CommonNames(*best.a, *best.b)) best = {one, other};
      }
    }
    // A part compared with a whole model: that the other parts are not there is no difference.
    return {best};
  }
  for (const InspectedComponent* component : rest_a) diff.components_only_in_a.push_back(component->name);
  for (const InspectedComponent* component : rest_b) diff.components_only_in_b.push_back(component->name);
  return pairs;
}

struct Comparison {
  const InspectedTensor* a;
  const InspectedTensor* b;
  TensorDifference* result;
};

// Matches by name; what can be compared is added to `comparisons`.
void MatchTensors(const Pair& pair, ComponentDiff& diff, std::vector<Comparison>& comparisons) {
  for (const InspectedTensor& tensor : pair.a->tensors) {
    if (!tensor.part_of.empty()) continue;
    const InspectedTensor* other = pair.b->Find(tensor.name);
    if (!other || !other->part_of.empty()) diff.only_in_a.push_back(tensor.name);
  }
  for (InspectedTensor& tensor : pair.b->tensors) {
    if (!tensor.part_of.empty()) continue;
    InspectedTensor* other = pair.a->Find(tensor.name);
    if (!other || !other->part_of.empty()) {
      diff.only_in_b.push_back(tensor.name);
      continue;
    }
    FitPackedShape(tensor, other->shape);
    FitPackedShape(*other, tensor.shape);
    TensorDifference d{.name = tensor.name,
                       .shape_a = other->shape,
                       .shape_b = tensor.shape,
                       .format_a = other->format,
                       .format_b = tensor.format};
    if (!other->has_numbers() || !tensor.has_numbers()) {
      d.problem = fmt::format("{} cannot be turned into numbers", other->has_numbers() ? "B" : "A");
    } else if (d.shape_a != d.shape_b) {
      d.problem = fmt::format("shape {} against {}", ToString(d.shape_a), ToString(d.shape_b));
    }
    diff.tensors.push_back(std::move(d));
  }
  for (TensorDifference& d : diff.tensors) {  // only now, when the vector does not move any more
    if (d.problem.empty()) comparisons.push_back({pair.a->Find(d.name), pair.b->Find(d.name), &d});
  }
}

void CompareValues(const std::vector<Comparison>& comparisons, const ScanContext& context) {
  struct Chunk {
    const Comparison* comparison;
    int64_t first, count;
    ErrorSums sums;
  };
  std::vector<Chunk> chunks;
  int64_t total = 0;
  for (const Comparison& comparison : comparisons) {
    const int64_t count = comparison.a->weight->NumberCount();
    for (int64_t first = 0; first < count; first += kChunkValues) {
      chunks.push_back({&comparison, first, std::min(kChunkValues, count - first), {}});
    }
    total += count;
  }
  ProgressCounter progress(context, total);
  context.pool.ParallelFor(static_cast<int64_t>(chunks.size()), [&](int64_t i) {
    Chunk& chunk = chunks[static_cast<size_t>(i)];
    const WeightTensor &a = *chunk.comparison->a->weight, &b = *chunk.comparison->b->weight;
    std::vector<double> block_a(WeightTensor::kMaxPiece), block_b(WeightTensor::kMaxPiece);
    for (int64_t done = 0; done < chunk.count; done += WeightTensor::kMaxPiece) {
      const int64_t count = std::min(WeightTensor::kMaxPiece, chunk.count - done);
      a.ReadNumbers(chunk.first + done, count, block_a.data());
      b.ReadNumbers(chunk.first + done, count, block_b.data());
      chunk.sums.Add(block_a.data(), block_b.data(), count, chunk.first + done);
    }
    a.ReleasePages(chunk.first, chunk.count);
    b.ReleasePages(chunk.first, chunk.count);
    progress.Done(chunk.count);
  });
  std::map<const Comparison*, ErrorSums> sums;
  for (const Chunk& chunk : chunks) sums[chunk.comparison].Merge(chunk.sums);
  for (const auto& [comparison, sum] : sums) sum.WriteTo(*comparison->result);
}

// Two models, or two components: what they say of themselves. Of a component that is compared with a whole
// model only its own config counts.
std::vector<ConfigDifference> DiffConfigsOf(const std::vector<Pair>& pairs, const WeightDiff& diff) {
  const auto is_component = [](const InspectedComponent& component, const std::filesystem::path& given) {
    return component.path.lexically_normal() == given.lexically_normal();
  };
  const auto of_one_kind = [&](const Pair& pair) {
    return is_component(*pair.a, diff.path_a) == is_component(*pair.b, diff.path_b);
  };
  if (std::all_of(pairs.begin(), pairs.end(), of_one_kind)) return DiffConfigs(diff.path_a, diff.path_b);
  return DiffConfigs(pairs[0].a->path, pairs[0].b->path);
}

// What could not be compared and NaN come first.
double SortKey(const TensorDifference& d) {
  const bool worst = !d.problem.empty() || std::isnan(d.nmse);
  return worst ? std::numeric_limits<double>::infinity() : d.relative();
}

}  // namespace

double TensorDifference::relative() const { return std::sqrt(nmse); }

size_t ComponentDiff::identical() const {
  return static_cast<size_t>(
      std::count_if(tensors.begin(), tensors.end(), [](const TensorDifference& d) { return d.identical(); }));
}

std::vector<RoleDifference> ComponentDiff::Roles() const {
  std::map<std::string, std::vector<const TensorDifference*>> by_role;
  for (const TensorDifference& d : tensors) {
    if (d.problem.empty() && !d.identical()) by_role[RoleOf(d.name)].push_back(&d);
  }
  std::vector<RoleDifference> roles;
  for (const auto& [key, members] : by_role) {
    RoleDifference role{.tensors = members.size()};
    std::vector<std::string> names;
    for (const TensorDifference* d : members) {
      names.push_back(d->name);
      role.mean_relative += d->relative() / static_cast<double>(members.size());
      role.max_relative = std::isnan(d->relative()) ? kNan : std::max(d->relative(), role.max_relative);
      role.max_abs = std::isnan(d->max_abs) ? kNan : std::max(d->max_abs, role.max_abs);
    }
    role.name = FoldedName(names);
    roles.push_back(std::move(role));
  }
  std::stable_sort(roles.begin(), roles.end(), [](const RoleDifference& x, const RoleDifference& y) {
    return x.max_relative > y.max_relative || (std::isnan(x.max_relative) && !std::isnan(y.max_relative));
  });
  return roles;
}

bool WeightDiff::Equal(double tolerance) const {
  if (tolerance == 0 && !configs.empty()) return false;
  if (!components_only_in_a.empty() || !components_only_in_b.empty() || !broken.empty()) return false;
  return std::all_of(components.begin(), components.end(), [&](const ComponentDiff& component) {
    return component.only_in_a.empty() && component.only_in_b.empty() &&
           std::all_of(component.tensors.begin(), component.tensors.end(), [&](const TensorDifference& d) {
             return d.Within(tolerance) && (tolerance > 0 || d.format_a == d.format_b);
           });
  });
}

WeightDiff DiffWeights(const std::filesystem::path& path_a, const std::filesystem::path& path_b,
                       const std::vector<std::string>& filters, const ScanContext& context) {
  WeightDiff diff{.path_a = path_a, .path_b = path_b};
  Components a = OpenForInspection(path_a, filters), b = OpenForInspection(path_b, filters);
  const std::vector<Pair> pairs = PairComponents(a, b, diff);
  diff.components.resize(pairs.size());
  if (filters.empty()) diff.configs = DiffConfigsOf(pairs, diff);
  std::vector<Comparison> comparisons;
  for (size_t i = 0; i < pairs.size(); ++i) {
    diff.components[i].name_a = pairs[i].a->name;
    diff.components[i].name_b = pairs[i].b->name;
    MatchTensors(pairs[i], diff.components[i], comparisons);
    for (const InspectedComponent* component : {pairs[i].a, pairs[i].b}) {
      std::copy_if(component->findings.begin(), component->findings.end(), std::back_inserter(diff.broken),
                   [](const Finding& finding) { return finding.severity == Severity::kBroken; });
    }
  }
  CompareValues(comparisons, context);
  ThrowIfDamaged(a);
  ThrowIfDamaged(b);
  for (ComponentDiff& component : diff.components) {
    std::stable_sort(component.tensors.begin(), component.tensors.end(),
                     [](const auto& x, const auto& y) { return SortKey(x) > SortKey(y); });
  }
  return diff;
}

}  // namespace qwen_image::inspect
