#include "horovod_tf/common/collectives/host_reduce.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/collectives/reduce_kernels.h"

namespace horovod_tf {
namespace {

// Elements whose partial results are kept on the stack while many inputs pass by: at most 8 KiB a
// buffer, so that partial results never leave the first-level cache.
constexpr std::size_t kBlockElements = 1024;

constexpr std::size_t kBlockBytes = (kBlockElements + kPartialSlack) * sizeof(std::int64_t);

FoldFunction FindKernel(InstructionSet set, DataType dtype, ReduceOp op) {
  return set == InstructionSet::kAvx2 ? FindAvx2Kernel(dtype, op) : FindPortableKernel(dtype, op);
}

bool IsFloating(DataType dtype) {
  return dtype == DataType::kFloat16 || dtype == DataType::kBFloat16 ||
         dtype == DataType::kFloat32 || dtype == DataType::kFloat64 || Info(dtype).is_complex;
}

// Elements of a block of this type, whose partial results fit.
std::size_t BlockElements(DataType dtype) {
  return dtype == DataType::kComplex128 ? kBlockElements / 2 : kBlockElements;
}

// Sums and averages of complex numbers are those of their parts, which are twice as many.
bool IsReducedByParts(const Reduction& reduction) {
  return Info(reduction.dtype).is_complex &&
         (reduction.op == ReduceOp::kSum || reduction.op == ReduceOp::kAverage);
}
Reduction OfParts(Reduction reduction) {
  reduction.dtype =
      reduction.dtype == DataType::kComplex64 ? DataType::kFloat32 : DataType::kFloat64;
  return reduction;
}

int DivisorOf(const Reduction& reduction) {
  return reduction.op == ReduceOp::kAverage ? reduction.divisor : 1;
}

bool HasFactors(const Reduction& reduction) {
  return reduction.prescale != 1.0 || reduction.postscale != 1.0 || DivisorOf(reduction) != 1;
}

// What is common to all steps. Division by a power of two is done by multiplication, which gives
// the same bits several times faster.
FoldStep StepWithFactors(const Reduction& reduction) {
  FoldStep step;
  const int divisor = DivisorOf(reduction);
  step.prescale = reduction.prescale;
  step.postscale = reduction.postscale;
  if ((divisor & (divisor - 1)) == 0 && reduction.postscale == 1.0) {
    step.postscale = 1.0 / divisor;
  } else {
    step.divisor = divisor;
  }
  return step;
}

const unsigned char* At(const void* buffer, std::size_t byte) {
  return static_cast<const unsigned char*>(buffer) + byte;
}
unsigned char* At(void* buffer, std::size_t byte) {
  return static_cast<unsigned char*>(buffer) + byte;
}

// Folds all inputs' elements from byte `begin` on, kMaxFoldInputs at a time. `step` has factors,
// elements and out. More inputs than one step takes need elements <= kBlockElements.
void FoldInputs(FoldFunction fold, FoldStep step, const std::vector<const void*>& inputs,
                std::size_t begin) {
  alignas(64) unsigned char partial[kBlockBytes];
  unsigned char* const out = step.out;
  for (std::size_t next = 0; next < inputs.size(); next += step.input_count) {
    step.input_count = std::min(kMaxFoldInputs, inputs.size() - next);
    for (std::size_t i = 0; i < step.input_count; ++i) {
      step.inputs[i] = At(inputs[next + i], begin);
    }
    step.partial = next == 0 ? nullptr : partial;
    step.last = next + step.input_count == inputs.size();
    step.out = step.last ? out : partial;
    fold(step);
  }
}

template <typename Integer>
Integer ScaleInteger(Integer value, double factor) {
  using Limits = std::numeric_limits<Integer>;
  // One more than the largest value: a power of two, so exact as a double for every type.
  const double above = std::ldexp(1.0, Limits::digits);
  const double below = static_cast<double>(Limits::min());
  const double scaled = static_cast<double>(value) * factor;
  if (scaled >= above) return Limits::max();
  if (scaled <= below) return Limits::min();
  return static_cast<Integer>(scaled);
}

template <typename Integer>
void ScaleAndDivideAs(unsigned char* block, std::size_t elements, int divisor, double factor) {
  for (std::size_t i = 0; i < elements; ++i) {
    Integer value;
    std::memcpy(&value, block + i * sizeof value, sizeof value);
    if (divisor != 1) {
      using Widest = std::conditional_t<std::is_signed_v<Integer>, std::int64_t, std::uint64_t>;
      value = static_cast<Integer>(static_cast<Widest>(value) / static_cast<Widest>(divisor));
    }
    if (factor != 1.0) value = ScaleInteger(value, factor);
    std::memcpy(block + i * sizeof value, &value, sizeof value);
  }
}

void ScaleAndDivide(DataType dtype, unsigned char* block, std::size_t elements, int divisor,
                    double factor) {
  switch (dtype) {
    case DataType::kUInt8:
      return ScaleAndDivideAs<std::uint8_t>(block, elements, divisor, factor);
    case DataType::kInt8:
      return ScaleAndDivideAs<std::int8_t>(block, elements, divisor, factor);
    case DataType::kUInt16:
      return ScaleAndDivideAs<std::uint16_t>(block, elements, divisor, factor);
    case DataType::kInt16:
      return ScaleAndDivideAs<std::int16_t>(block, elements, divisor, factor);
    case DataType::kUInt32:
      return ScaleAndDivideAs<std::uint32_t>(block, elements, divisor, factor);
    case DataType::kInt32:
      return ScaleAndDivideAs<std::int32_t>(block, elements, divisor, factor);
    case DataType::kUInt64:
      return ScaleAndDivideAs<std::uint64_t>(block, elements, divisor, factor);
    default:
      return ScaleAndDivideAs<std::int64_t>(block, elements, divisor, factor);
  }
}

// One block of integers with factors: every input is scaled on its own before it is folded.
void FoldScaledIntegers(FoldFunction fold, const Reduction& reduction,
                        const std::vector<const void*>& inputs, std::size_t begin,
                        std::size_t elements, unsigned char* result) {
  const std::size_t bytes = elements * Info(reduction.dtype).size;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    alignas(64) unsigned char scaled[kBlockBytes];
    unsigned char* const to = i == 0 ? result : scaled;
    std::memcpy(to, At(inputs[i], begin), bytes);
    ScaleAndDivide(reduction.dtype, to, elements, 1, reduction.prescale);
    if (i == 0) continue;
    FoldStep step;
    step.elements = elements;
    step.inputs[0] = scaled;
    step.input_count = 1;
    step.partial = result;
    step.out = result;
    fold(step);
  }
}

void ReduceIntegersWithFactors(FoldFunction fold, const Reduction& reduction,
                               const std::vector<const void*>& inputs, std::size_t elements,
                               void* out) {
  const std::size_t size = Info(reduction.dtype).size;
  for (std::size_t begin = 0; begin < elements; begin += kBlockElements) {
    const std::size_t count = std::min(kBlockElements, elements - begin);
    alignas(64) unsigned char result[kBlockBytes];
    if (reduction.prescale != 1.0) {
      FoldScaledIntegers(fold, reduction, inputs, begin * size, count, result);
    } else {
      FoldStep step;
      step.elements = count;
      step.out = result;
      FoldInputs(fold, step, inputs, begin * size);
    }
    ScaleAndDivide(reduction.dtype, result, count, DivisorOf(reduction), reduction.postscale);
    std::memcpy(At(out, begin * size), result, count * size);
  }
}

}  // namespace

std::string_view InstructionSetName(InstructionSet set) {
  return set == InstructionSet::kAvx2 ? "avx2" : "scalar";
}

Table<InstructionSet> SupportedInstructionSets() {
  static constexpr InstructionSet kSets[] = {InstructionSet::kScalar, InstructionSet::kAvx2};
  static const bool avx2 =
      FindKernel(InstructionSet::kAvx2, DataType::kFloat32, ReduceOp::kSum) != nullptr;
  return avx2 ? Table(kSets) : Table(kSets, 1);
}

void Reduce(const Reduction& reduction, const std::vector<const void*>& inputs,
            std::size_t elements, void* out) {
  ReduceWith(SupportedInstructionSets().back(), reduction, inputs, elements, out);
}

void ReduceWith(InstructionSet set, const Reduction& reduction,
                const std::vector<const void*>& inputs, std::size_t elements, void* out) {
  HVD_CHECK(!inputs.empty(), "a reduction of nothing");
  HVD_CHECK(reduction.divisor >= 1, "an average over no ranks");
  if (IsReducedByParts(reduction)) {
    return ReduceWith(set, OfParts(reduction), inputs, 2 * elements, out);
  }
  const FoldFunction fold = FindKernel(set, reduction.dtype, reduction.op);
  HVD_CHECK(fold != nullptr,
            "a reduction of a type without arithmetic, or an instruction set "
            "that this CPU lacks");
  if (elements == 0) return;
  const std::size_t size = Info(reduction.dtype).size;
  const bool factors = HasFactors(reduction);
  if (inputs.size() == 1 && !factors) {
    if (out != inputs[0]) std::memcpy(out, inputs[0], elements * size);
    return;
  }
  if (factors && !IsFloating(reduction.dtype)) {
    ReduceIntegersWithFactors(fold, reduction, inputs, elements, out);
    return;
  }
  FoldStep step = StepWithFactors(reduction);
  const std::size_t block =
      inputs.size() <= kMaxFoldInputs ? elements : BlockElements(reduction.dtype);
  for (std::size_t begin = 0; begin < elements; begin += block) {
    step.elements = std::min(block, elements - begin);
    step.out = At(out, begin * size);
    FoldInputs(fold, step, inputs, begin * size);
  }
}

}  // namespace horovod_tf
