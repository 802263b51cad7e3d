#include "horovod_tf/common/runtime/json_array_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {
namespace {

constexpr std::string_view kClosing = "\n]\n";
// By how much the file is made longer at a time.
constexpr std::int64_t kRoom = 64 << 10;

}  // namespace

JsonArrayFile::~JsonArrayFile() {
  if (fd_ < 0) return;
  const std::int64_t text_length = end_ + static_cast<std::int64_t>(kClosing.size());
  // Blanks that cannot be cut off do no harm.
  if (length_ > text_length) static_cast<void>(!::ftruncate(fd_, text_length));
  ::close(fd_);
}

Status JsonArrayFile::Open(const std::string& path, std::string_view first_element) {
  HVD_CHECK(fd_ < 0, "Open is called once");
  path_ = path;
  // Readable too, as a mapping must be. O_NONBLOCK: opening a device may wait for ever.
  constexpr int kFlags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK;
  constexpr mode_t kReadableByAll = 0644;
  fd_ = ::open(path.c_str(), kFlags, kReadableByAll);
  if (fd_ < 0) return Status::InvalidArgument(SystemError("cannot open"));
  const std::string text = "[\n" + std::string(first_element);
  failure_ = PwriteAll(text + std::string(kClosing), 0);
  end_ = static_cast<std::int64_t>(text.size());
  length_ = end_ + static_cast<std::int64_t>(kClosing.size());
  return failure_;
}

void JsonArrayFile::Add(std::string_view element) {
  if (!failure_.ok()) return;
  constexpr std::string_view kSeparator = ",\n";
  const std::size_t more = kSeparator.size() + element.size() + kClosing.size();
  if (!buffer_.empty() && buffer_.size() + more > FileWindow::kLargestPut) {
    if (!Commit().ok()) return;
  }
  buffer_.append(kSeparator).append(element);
}

Status JsonArrayFile::Commit() {
  if (failure_.ok() && !buffer_.empty()) Write(buffer_);
  buffer_.clear();
  return failure_;
}

void JsonArrayFile::Write(std::string_view text) {
  const std::string block = std::string(text).append(kClosing);
  const auto size = static_cast<std::int64_t>(block.size());
  failure_ = MakeRoom(size);
  if (!failure_.ok()) return;
  if (!window_.Covers(end_, end_ + size)) window_.Map(fd_, end_, length_);
  if (!window_.Put(block, end_)) failure_ = PwriteAll(block, end_);
  if (failure_.ok()) end_ += static_cast<std::int64_t>(text.size());
}

Status JsonArrayFile::MakeRoom(std::int64_t size) {
  if (length_ >= end_ + size) return Status::Ok();
  // Blanks behind the bracket are valid, and so is any part of them. A disk that is full is found
  // out here, while the text is whole.
  const std::string blanks(static_cast<std::size_t>(std::max(kRoom, size)), ' ');
  HVD_RETURN_IF_ERROR(PwriteAll(blanks, length_));
  length_ += static_cast<std::int64_t>(blanks.size());
  return Status::Ok();
}

Status JsonArrayFile::PwriteAll(std::string_view text, std::int64_t offset) {
  while (!text.empty()) {
    const ssize_t written = ::pwrite(fd_, text.data(), text.size(), offset);
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
      offset += written;
    } else if (written == 0 || errno != EINTR) {
      return Status::Unknown(SystemError("cannot write to"));
    }
  }
  return Status::Ok();
}

std::string JsonArrayFile::SystemError(std::string_view what) const {
  const std::string reason = std::system_category().message(errno);
  return std::string(what) + " " + path_ + ": " + reason;
}

}  // namespace horovod_tf
