// Assembler: AssembleWorld with an end in time, whatever the MPI does meanwhile.
#ifndef HOROVOD_TF_COMMON_RUNTIME_ASSEMBLER_H_
#define HOROVOD_TF_COMMON_RUNTIME_ASSEMBLER_H_

#include <memory>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/config.h"
#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/runtime/arrivals.h"
#include "horovod_tf/common/runtime/assemble.h"

namespace horovod_tf {

// MPI_Init_thread returns when all ranks have come, and cannot be interrupted. So the world is
// assembled on a thread of its own, which is left behind when the time is over. It ends by itself
// if MPI ever lets it; nobody waits for it, and nothing is finalised.
//
// Thread rule: one thread at a time. Never destroyed while an assembly is under way.
class Assembler {
 public:
  // How the world is made: AssembleWorld but in tests.
  using Assemble = Status (*)(const Config& config, StartProgress& progress, World* world);
  explicit Assembler(Assemble assemble = &AssembleWorld) : assemble_(assemble) {}

  // DeadlineExceeded soon after `deadline`, with who has arrived and where the start stands;
  // FailedPrecondition while an earlier assembly is still under way.
  Status Run(const Config& config, TimePoint deadline, World* world);

  // The job has started: nobody needs to see any more that this rank has arrived.
  void ForgetArrivals() { arrivals_.reset(); }

 private:
  struct Attempt;
  Status Await(Attempt& attempt, World* world);
  Status TooLate(const Attempt& attempt) const;

  const Assemble assemble_;
  std::shared_ptr<Attempt> last_;
  // Kept after a failure, so that others whose time ends later still see that this rank had come.
  std::unique_ptr<Arrivals> arrivals_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_ASSEMBLER_H_
