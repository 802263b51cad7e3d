#include "horovod_tf/common/shm/shm_join.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "horovod_tf/common/protocol/wire.h"
#include "horovod_tf/common/shm/shm_socket.h"

namespace horovod_tf {
namespace {

constexpr std::size_t kPage = 4096;
// However many ranks there are: the default limit of all buffers is 64 MiB.
constexpr std::size_t kMostBytes = 32 << 20;

// What a rank says of itself at first.
struct Introduction {
  std::string host;
  std::string socket;           // rank 0's
  std::uint64_t pid = 0;        // 0: unknown
  std::uint64_t pid_space = 0;  // process numbers mean the same where this is equal
};

std::string Encode(const Introduction& it) {
  WireWriter writer;
  writer.String(it.host);
  writer.String(it.socket);
  writer.Varint(it.pid);
  writer.Varint(it.pid_space);
  return writer.Take();
}

Status Decode(std::string_view bytes, Introduction* it) {
  WireReader reader(bytes);
  it->host = std::string(reader.String());
  it->socket = std::string(reader.String());
  it->pid = reader.Varint();
  it->pid_space = reader.Varint();
  return reader.status();
}

// The last step that a rank took, as all others hear of it, with what it has to say.
std::string EncodeStep(const Status& status, const std::string& bytes) {
  WireWriter writer;
  writer.U8(static_cast<std::uint8_t>(status.code()));
  writer.String(status.message());
  writer.String(bytes);
  return writer.Take();
}

Status DecodeStep(const std::string& step, Status* status, std::string* bytes) {
  WireReader reader(step);
  const std::optional<StatusCode> code = StatusCodeFromInt(reader.U8());
  const std::string text(reader.String());
  *bytes = std::string(reader.String());
  if (!code) reader.Fail("a status code");
  HVD_RETURN_IF_ERROR(reader.status());
  *status = *code == StatusCode::kOk ? Status::Ok() : Status::FromCode(*code, text);
  return Status::Ok();
}

// The ranks on their way to the segment, in steps that all take together: nobody takes a step
// before all have said how the last one went.
class Joining {
 public:
  Joining(RankExchange& exchange, const ShmOptions& options)
      : exchange_(exchange), options_(options), introductions_(Ranks()) {}

  Status Run(ShmMembership* membership, Status* reason) {
    std::vector<std::string> said;
    const Status begun = Begin();  // it fills own_ in
    HVD_RETURN_IF_ERROR(Agree(begun, Encode(own_), &said, reason));
    if (reason->ok()) {
      HVD_RETURN_IF_ERROR(TakeIntroductions(said));
      *reason = CheckHosts();
    }
    if (!reason->ok()) return Status::Ok();
    HVD_RETURN_IF_ERROR(Agree(Connect(), "", &said, reason));
    if (!reason->ok()) return Status::Ok();
    HVD_RETURN_IF_ERROR(Agree(HandOut(), "", &said, reason));
    if (!reason->ok()) return Status::Ok();
    HVD_RETURN_IF_ERROR(Agree(Map(), "", &said, reason));
    if (!reason->ok()) return Status::Ok();
    Conclude(membership);
    return Status::Ok();
  }

 private:
  std::size_t Ranks() const { return static_cast<std::size_t>(exchange_.size()); }

  // *reason is that of the first rank whose step failed. `said` is by rank.
  Status Agree(const Status& mine, const std::string& bytes, std::vector<std::string>* said,
               Status* reason) {
    std::vector<std::string> steps;
    HVD_RETURN_IF_ERROR(exchange_.Gather(EncodeStep(mine, bytes), &steps));
    if (steps.size() != Ranks()) return Status::Internal("an exchange that lost ranks");
    said->assign(steps.size(), std::string());
    *reason = Status::Ok();
    for (std::size_t rank = 0; rank < steps.size(); ++rank) {
      Status step;
      HVD_RETURN_IF_ERROR(DecodeStep(steps[rank], &step, &(*said)[rank]));
      if (reason->ok()) *reason = step.WithContext("rank " + std::to_string(rank));
    }
    return Status::Ok();
  }

  // Rank 0 makes the segment; everybody says who it is.
  Status Begin() {
    own_.host = options_.host;
    own_.pid = static_cast<std::uint64_t>(getpid());
    struct stat space {};
    if (stat("/proc/self/ns/pid", &space) == 0) own_.pid_space = space.st_ino;
    if (options_.disable) return Status::Unimplemented("HOROVOD_TF_SHM_DISABLE is set");
    if (exchange_.size() > ShmSegment::kMostRanks) {
      return Status::Unavailable("more than " + std::to_string(ShmSegment::kMostRanks) + " ranks");
    }
    if (exchange_.rank() != 0) return Status::Ok();
    HVD_RETURN_IF_ERROR(ShmSegment::Create(
        exchange_.size(), ShmSlotBytes(exchange_.size(), options_.chunk_bytes, kMostBytes),
        &segment_));
    return ListenForRanks(exchange_.size(), &socket_, &own_.socket);
  }

  Status TakeIntroductions(const std::vector<std::string>& said) {
    for (std::size_t rank = 0; rank < said.size(); ++rank) {
      HVD_RETURN_IF_ERROR(Decode(said[rank], &introductions_[rank]));
    }
    return Status::Ok();
  }

  Status CheckHosts() const {
    for (std::size_t rank = 1; rank < Ranks(); ++rank) {
      if (introductions_[rank].host != introductions_[0].host) {
        return Status::Unimplemented("rank " + std::to_string(rank) + " is on host " +
                                     introductions_[rank].host + " and rank 0 on host " +
                                     introductions_[0].host);
      }
    }
    return Status::Ok();
  }

  Status Connect() {
    if (exchange_.rank() == 0) return Status::Ok();
    return ConnectToRank(introductions_[0].socket, &socket_);
  }

  Status HandOut() {
    if (exchange_.rank() != 0) return Status::Ok();
    return SendDescriptorToAll(socket_, exchange_.size() - 1, segment_->descriptor());
  }

  Status Map() {
    if (exchange_.rank() != 0) {
      UniqueFd descriptor;
      HVD_RETURN_IF_ERROR(ReceiveDescriptor(socket_, &descriptor));
      HVD_RETURN_IF_ERROR(ShmSegment::Map(std::move(descriptor), exchange_.size(), &segment_));
    }
    segment_->CloseDescriptor();
    socket_.Reset();
    OpenProcesses();
    AddOwnProcessors();
    return Status::Ok();
  }

  // While all of them wait for each other, so that no number can be another process's by now. Where
  // it cannot be done (an older system, other process numbers), the death of a rank shows only when
  // the job as a whole hears of it.
  void OpenProcesses() {
    processes_.resize(Ranks());
    for (std::size_t rank = 0; rank < Ranks(); ++rank) {
      const Introduction& it = introductions_[rank];
      if (it.pid == own_.pid || it.pid_space != own_.pid_space || own_.pid_space == 0) continue;
      processes_[rank] = OpenProcess(static_cast<pid_t>(it.pid));
    }
  }

  void AddOwnProcessors() {
    cpu_set_t own;
    if (sched_getaffinity(0, sizeof own, &own) != 0) return;
    for (std::size_t cpu = 0; cpu < ShmHeader::kCpuWords * 64; ++cpu) {
      if (!CPU_ISSET(cpu, &own)) continue;
      segment_->header().cpus[cpu / 64].fetch_or(std::uint64_t{1} << cpu % 64);
    }
  }

  void Conclude(ShmMembership* membership) {
    int processors = 0;
    for (const std::atomic<std::uint64_t>& word : segment_->header().cpus) {
      processors += __builtin_popcountll(word.load());
    }
    *membership = MakeMembership(exchange_.rank(), std::move(segment_), std::move(processes_),
                                 PatienceFor(exchange_.size(), processors));
  }

  RankExchange& exchange_;
  const ShmOptions& options_;
  std::vector<Introduction> introductions_;  // by rank
  Introduction own_;
  std::shared_ptr<ShmSegment> segment_;
  UniqueFd socket_;  // rank 0 listens, the others are connected to it
  std::vector<UniqueFd> processes_;
};

}  // namespace

std::size_t ShmSlotBytes(int ranks, std::size_t wanted, std::size_t most_bytes) {
  const std::size_t slots = (static_cast<std::size_t>(ranks) + 1) * kShmSlots;
  const std::size_t room = std::min(wanted, most_bytes / slots);
  return std::max(room / kPage, std::size_t{1}) * kPage;
}

Status JoinShm(RankExchange& exchange, const ShmOptions& options, ShmMembership* membership,
               Status* reason) {
  return Joining(exchange, options).Run(membership, reason);
}

}  // namespace horovod_tf
