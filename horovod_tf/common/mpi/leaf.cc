// What assemble.cc finds in this library.
#include <memory>
#include <string>
#include <utility>

#include "horovod_tf/common/export.h"
#include "horovod_tf/common/mpi/mpi_backend.h"
#include "horovod_tf/common/mpi/mpi_exchange.h"
#include "horovod_tf/common/mpi/mpi_transport.h"
#include "horovod_tf/common/mpi/mpi_world.h"
#include "horovod_tf/common/runtime/mpi_leaf.h"

namespace {

using horovod_tf::MpiGroup;
using horovod_tf::MpiWorld;
using horovod_tf::Status;

Status Split(const std::shared_ptr<MpiWorld>& world, const horovod_tf::RankGroup& some,
             horovod_tf::World* made) {
  std::shared_ptr<MpiGroup> group;
  HVD_RETURN_IF_ERROR(MpiGroup::Make(world, some, &group));
  made->mpi_threads_supported = world->threads_supported();
  made->transport = horovod_tf::MakeMpiTransport(group);
  made->abandon = [world] { world->MarkFailed(); };
  made->backends.Add(horovod_tf::MakeMpiBackend(std::move(group)));
  return Status::Ok();
}

Status Open(const horovod_tf::Config& config, horovod_tf::StartProgress& progress,
            horovod_tf::World* made) {
  std::shared_ptr<MpiWorld> world;
  HVD_RETURN_IF_ERROR(MpiWorld::Open(config, progress, &world));
  made->mpi_threads_supported = world->threads_supported();
  made->mpi_library = world->library();
  made->agreements.emplace_back("the MPI library", world->library());
  made->transport = horovod_tf::MakeMpiTransport(world);
  made->exchange = horovod_tf::MakeMpiExchange(world, progress.deadline());
  made->split = [world](const horovod_tf::RankGroup& some, horovod_tf::World* group) {
    return Split(world, some, group);
  };
  made->abandon = [world] { world->MarkFailed(); };
  made->backends.Add(horovod_tf::MakeMpiBackend(std::move(world)));
  return Status::Ok();
}

}  // namespace

extern "C" HVD_EXPORT const horovod_tf::MpiLeaf* horovod_mpi_leaf(void) {
  static const std::string interface = horovod_tf::MpiLeafInterface();
  static const horovod_tf::MpiLeaf leaf = {interface.c_str(), &Open, &horovod_tf::FinalizeMpi};
  return &leaf;
}
