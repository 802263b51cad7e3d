#include "horovod_tf/common/runtime/file_window.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace horovod_tf {
namespace {

// madvise's MADV_POPULATE_WRITE of Linux 5.14; other kernels refuse it.
constexpr int kPopulateWrite = 23;

std::int64_t PageStart(std::int64_t offset) { return offset - offset % ::sysconf(_SC_PAGESIZE); }

}  // namespace

FileWindow::FileWindow() {
  // Without a pipe Put says no. Its ends must not wait: nobody is at the other one.
  if (::pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) != 0) pipe_ = {-1, -1};
}

FileWindow::~FileWindow() {
  Unmap();
  ClosePipe();
}

void FileWindow::Map(int fd, std::int64_t begin, std::int64_t end) {
  Unmap();
  begin = PageStart(begin);
  void* const data = ::mmap(nullptr, static_cast<std::size_t>(end - begin), PROT_READ | PROT_WRITE,
                            MAP_SHARED, fd, begin);
  if (data == MAP_FAILED) return;
  data_ = static_cast<char*>(data);
  begin_ = begin;
  end_ = end;
}

bool FileWindow::Put(std::string_view text, std::int64_t offset) {
  const auto size = static_cast<ssize_t>(text.size());
  if (!Covers(offset, offset + size) || text.size() > kLargestPut) return false;
  // A page fault in the middle of the copy is where a kill could still cut it: first let the pages
  // be there. Only a help, so whether it worked does not matter.
  char* const to = data_ + (offset - begin_);
  char* const page = data_ + (PageStart(offset) - begin_);
  static_cast<void>(
      ::madvise(page, static_cast<std::size_t>(to - page) + text.size(), kPopulateWrite));
  const bool done = ::write(pipe_[1], text.data(), text.size()) == size &&
                    ::read(pipe_[0], to, text.size()) == size;
  // What may be left in the pipe must not come out before the next text.
  if (!done) ClosePipe();
  return done;
}

void FileWindow::Unmap() {
  if (data_ != nullptr) ::munmap(data_, static_cast<std::size_t>(end_ - begin_));
  data_ = nullptr;
}

void FileWindow::ClosePipe() {
  for (int& fd : pipe_) {
    if (fd >= 0) ::close(fd);
    fd = -1;
  }
}

}  // namespace horovod_tf
