#include "horovod_tf/common/shm/shm_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {
namespace {

constexpr std::uint64_t kMagic = 0x32304d4853445648;  // "HVDSHM02"
constexpr std::size_t kPage = 4096;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Status FromErrno(const std::string& call, int error) {
  const std::string text = call + ": " + std::generic_category().message(error);
  const bool scarce = error == ENOMEM || error == ENOSPC || error == EMFILE || error == ENFILE;
  return scarce ? Status::ResourceExhausted(text) : Status::Unavailable(text);
}

std::size_t RoundToPages(std::size_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

std::size_t BytesBeforeSlots(int ranks) {
  return RoundToPages(sizeof(ShmHeader) + static_cast<std::size_t>(ranks) * sizeof(ShmDesk));
}

// Beyond the limit the system does not return an error but ends the process.
Status CheckFileSizeLimit(std::size_t bytes) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0) return FromErrno("getrlimit(RLIMIT_FSIZE)", errno);
  if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= bytes) return Status::Ok();
  return Status::ResourceExhausted("files may have " + std::to_string(limit.rlim_cur) +
                                   " bytes at most (ulimit -f), and it takes " +
                                   std::to_string(bytes));
}

Status MakeMemory(std::size_t bytes, UniqueFd* descriptor) {
  HVD_RETURN_IF_ERROR(CheckFileSizeLimit(bytes));
  UniqueFd made(memfd_create("horovod_tf", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!made.valid()) return FromErrno("memfd_create", errno);
  // Allocated now: where memory is short, this is an error and a later access would be a signal.
  int result = 0;
  do {
    result = fallocate(made.get(), 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    return FromErrno("fallocate of " + std::to_string(bytes) + " bytes", errno);
  }
  if (fcntl(made.get(), F_ADD_SEALS, kSeals) != 0) return FromErrno("fcntl(F_ADD_SEALS)", errno);
  *descriptor = std::move(made);
  return Status::Ok();
}

Status MapMemory(const UniqueFd& descriptor, std::size_t bytes, void** memory) {
  *memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor.get(), 0);
  return *memory == MAP_FAILED ? FromErrno("mmap of " + std::to_string(bytes) + " bytes", errno)
                               : Status::Ok();
}

template <typename T>
T* At(void* memory, std::size_t byte) {
  return static_cast<T*>(static_cast<void*>(static_cast<unsigned char*>(memory) + byte));
}

}  // namespace

std::size_t ShmSegment::Bytes(int ranks, std::size_t slot_bytes) {
  return BytesBeforeSlots(ranks) + (static_cast<std::size_t>(ranks) + 1) * kShmSlots * slot_bytes;
}

ShmSegment::ShmSegment(Mapping mapping)
    : descriptor_(std::move(mapping.descriptor)),
      ranks_(mapping.ranks),
      slot_bytes_(mapping.slot_bytes),
      bytes_(Bytes(mapping.ranks, mapping.slot_bytes)),
      header_(At<ShmHeader>(mapping.memory, 0)),
      desks_(At<ShmDesk>(mapping.memory, sizeof(ShmHeader))),
      slots_(At<unsigned char>(mapping.memory, BytesBeforeSlots(mapping.ranks))) {}

ShmSegment::~ShmSegment() { munmap(header_, bytes_); }

Status ShmSegment::Create(int ranks, std::size_t slot_bytes, std::shared_ptr<ShmSegment>* segment) {
  HVD_CHECK(1 <= ranks && ranks <= kMostRanks, "a segment for no ranks or too many");
  HVD_CHECK(slot_bytes > 0 && slot_bytes % kPage == 0, "a slot is made of pages");
  const std::size_t bytes = Bytes(ranks, slot_bytes);
  UniqueFd descriptor;
  HVD_RETURN_IF_ERROR(MakeMemory(bytes, &descriptor));
  void* memory = nullptr;
  HVD_RETURN_IF_ERROR(MapMemory(descriptor, bytes, &memory));
  auto* const header = static_cast<ShmHeader*>(memory);
  header->ranks = static_cast<std::uint64_t>(ranks);
  header->slot_bytes = slot_bytes;
  header->magic = kMagic;
  *segment =
      std::make_shared<ShmSegment>(Mapping{std::move(descriptor), memory, ranks, slot_bytes});
  return Status::Ok();
}

Status ShmSegment::Map(UniqueFd descriptor, int ranks, std::shared_ptr<ShmSegment>* segment) {
  struct stat information {};
  if (fstat(descriptor.get(), &information) != 0) return FromErrno("fstat", errno);
  const int seals = fcntl(descriptor.get(), F_GET_SEALS);
  const auto bytes = static_cast<std::size_t>(information.st_size);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || bytes < sizeof(ShmHeader)) {
    return Status::FailedPrecondition("what arrived is no segment");
  }
  void* memory = nullptr;
  HVD_RETURN_IF_ERROR(MapMemory(descriptor, bytes, &memory));
  const auto* const header = static_cast<const ShmHeader*>(memory);
  const std::size_t slot_bytes = header->slot_bytes;
  if (header->magic != kMagic || header->ranks != static_cast<std::uint64_t>(ranks) ||
      slot_bytes > bytes || Bytes(ranks, slot_bytes) != bytes) {
    munmap(memory, bytes);
    return Status::FailedPrecondition("the segment that arrived is not of this job");
  }
  *segment =
      std::make_shared<ShmSegment>(Mapping{std::move(descriptor), memory, ranks, slot_bytes});
  return Status::Ok();
}

}  // namespace horovod_tf
