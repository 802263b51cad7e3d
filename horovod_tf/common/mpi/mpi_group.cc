#include "horovod_tf/common/mpi/mpi_group.h"

#include <numeric>
#include <utility>

namespace horovod_tf {
namespace {

// Of the world; in mpi_world.cc there is one more.
constexpr int kControlTag = 1;
constexpr int kDataTag = 3;
// That of group i is so much more than i.
constexpr int kFirstTagOfGroups = 16;

std::vector<int> AllOf(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

MpiGroup::MpiGroup(std::shared_ptr<MpiWorld> world, std::vector<int> ranks, int rank,
                   int control_tag, int data_tag)
    : world_(std::move(world)),
      ranks_(std::move(ranks)),
      places_(static_cast<std::size_t>(world_->size()), -1),
      rank_(rank),
      control_tag_(control_tag),
      data_tag_(data_tag) {
  for (int place = 0; place < size(); ++place) {
    places_[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(place)])] = place;
  }
}

MpiGroup::MpiGroup(std::shared_ptr<MpiWorld> world)
    : MpiGroup(world, AllOf(world->size()), world->rank(), kControlTag, kDataTag) {}

Status MpiGroup::Make(std::shared_ptr<MpiWorld> world, const RankGroup& some,
                      std::shared_ptr<MpiGroup>* group) {
  const int most = world->highest_tag();
  if (some.id > most - kFirstTagOfGroups) {
    return Status::ResourceExhausted("this MPI has " + std::to_string(most) +
                                     " tags, one for each process set of a job");
  }
  const int tag = kFirstTagOfGroups + some.id;
  *group = std::shared_ptr<MpiGroup>(
      std::unique_ptr<MpiGroup>(new MpiGroup(std::move(world), some.ranks, some.rank, tag, tag)));
  return Status::Ok();
}

}  // namespace horovod_tf
