#include "horovod_tf/common/runtime/job_exchange.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "horovod_tf/common/base/mutex.h"
#include "horovod_tf/common/protocol/wire.h"
#include "horovod_tf/common/runtime/tensor_entry.h"

namespace horovod_tf {
namespace {

// No name that a framework gives a tensor.
constexpr char kName[] = "<process sets>";

// One gathering: its buffers, which the job uses until it is done, and its end.
//
// Thread rule: the buffers are the job's until Await has returned; the rest is for any thread.
class Gathering final : public OpContext, public std::enable_shared_from_this<Gathering> {
 public:
  explicit Gathering(std::string mine) : mine_(std::move(mine)) {}

  TensorEntry Entry() {
    TensorEntry entry;
    entry.request.name = kName;
    entry.request.kind = CollectiveKind::kAllgather;
    entry.request.dtype = DataType::kUInt8;
    entry.request.shape = TensorShape{static_cast<std::int64_t>(mine_.size())};
    entry.input = {DataType::kUInt8, entry.request.shape, mine_.data()};
    entry.context = shared_from_this();
    entry.done = Completion([self = shared_from_this()](const Status& status) {
      MutexLock lock(self->mutex_);
      self->done_ = true;
      self->status_ = status;
      self->changed_.NotifyAll();
    });
    return entry;
  }

  Status AllocateOutput(const TensorShape& shape, TensorView* output) override {
    all_.resize(static_cast<std::size_t>(shape.elements()));
    *output = {DataType::kUInt8, shape, all_.data()};
    return Status::Ok();
  }

  // The job sees to it that this ends.
  Status Await() {
    MutexLock lock(mutex_);
    while (!done_) changed_.Wait(mutex_);
    return status_;
  }

  const std::string& all() const { return all_; }

 private:
  std::string mine_;
  std::string all_;
  Mutex mutex_;
  CondVar changed_;
  bool done_ HVD_GUARDED_BY(mutex_) = false;
  Status status_ HVD_GUARDED_BY(mutex_);
};

}  // namespace

Status GatherInJob(Runtime& job, const std::string& mine, std::vector<std::string>* all) {
  WireWriter writer;
  writer.String(mine);
  const auto gathering = std::make_shared<Gathering>(writer.Take());
  std::vector<TensorEntry> group;
  group.push_back(gathering->Entry());
  job.Enqueue(std::move(group));
  HVD_RETURN_IF_ERROR(gathering->Await());
  WireReader reader(gathering->all());
  all->clear();
  while (reader.ok() && !reader.AtEnd()) all->emplace_back(reader.String());
  HVD_RETURN_IF_ERROR(reader.status());
  if (all->size() == static_cast<std::size_t>(job.topology().size)) return Status::Ok();
  return Status::FailedPrecondition(
      "only " + std::to_string(all->size()) + " of " + std::to_string(job.topology().size) +
      " ranks have come to add or remove a process set: the others have no more data and wait in "
      "join(), which all ranks have to leave first");
}

// What a rank says in one round.
struct MembersExchange::Said {
  bool ended = false;  // how it went; else a step, or nothing if the rank is no member
  Status status;       // if it has ended
  std::string bytes;   // of a step

  std::string Encode() const {
    WireWriter writer;
    writer.U8(ended ? 1 : 0);
    writer.U8(static_cast<std::uint8_t>(status.code()));
    writer.String(ended ? status.message() : bytes);
    return writer.Take();
  }

  static Status Decode(const std::string& text, Said* said) {
    WireReader reader(text);
    said->ended = reader.U8() != 0;
    const std::optional<StatusCode> code = StatusCodeFromInt(reader.U8());
    said->bytes = std::string(reader.String());
    if (!code) reader.Fail("a status code");
    HVD_RETURN_IF_ERROR(reader.status());
    said->status = *code == StatusCode::kOk ? Status::Ok() : Status::FromCode(*code, said->bytes);
    return Status::Ok();
  }
};

MembersExchange::MembersExchange(Runtime& job, std::vector<int> members)
    : job_(job), members_(std::move(members)) {
  const auto own = std::find(members_.begin(), members_.end(), job_.topology().rank);
  if (own != members_.end()) rank_ = static_cast<int>(own - members_.begin());
}

// `said` is by member.
Status MembersExchange::Round(const Said& mine, std::vector<Said>* said) {
  std::vector<std::string> all;
  HVD_RETURN_IF_ERROR(GatherInJob(job_, mine.Encode(), &all));
  said->assign(members_.size(), Said());
  for (std::size_t i = 0; i < members_.size(); ++i) {
    HVD_RETURN_IF_ERROR(Said::Decode(all[static_cast<std::size_t>(members_[i])], &(*said)[i]));
  }
  return Status::Ok();
}

Status MembersExchange::Gather(const std::string& mine, std::vector<std::string>* all) {
  std::vector<Said> said;
  HVD_RETURN_IF_ERROR(Round(Said{false, Status::Ok(), mine}, &said));
  all->clear();
  for (std::size_t i = 0; i < said.size(); ++i) {
    if (said[i].ended) {
      return Status::Cancelled("rank " + std::to_string(members_[i]) +
                               " has given up: " + said[i].status.message());
    }
    all->push_back(std::move(said[i].bytes));
  }
  return Status::Ok();
}

Status MembersExchange::Conclude(const Status& mine) {
  std::vector<Said> said;
  const auto ended = [](const Said& it) { return it.ended; };
  do {
    HVD_RETURN_IF_ERROR(Round(Said{rank_ >= 0, mine, ""}, &said));
  } while (!std::all_of(said.begin(), said.end(), ended));
  for (std::size_t i = 0; i < said.size(); ++i) {
    // One that gave up because another has is not the first.
    if (!said[i].status.ok() && said[i].status.code() != StatusCode::kCancelled) {
      return said[i].status.WithContext("rank " + std::to_string(members_[i]));
    }
  }
  for (const Said& it : said) HVD_RETURN_IF_ERROR(it.status);
  return Status::Ok();
}

}  // namespace horovod_tf
