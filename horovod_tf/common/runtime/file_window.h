// FileWindow: puts bytes into a file so that a kill finds either all of them there or none.
#ifndef HOROVOD_TF_COMMON_RUNTIME_FILE_WINDOW_H_
#define HOROVOD_TF_COMMON_RUNTIME_FILE_WINDOW_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace horovod_tf {

// A mapping of a part of the file, and a pipe. pwrite copies page by page, and a process that is
// killed in between leaves the first page written and the second not. What is read from a pipe into
// a mapping of the file is copied by the kernel in one go instead, which no signal cuts. And where
// a copy in user space would end the process with SIGBUS, because somebody has made the file
// shorter, the read just fails.
//
// Thread rule: one thread at a time.
class FileWindow {
 public:
  // How much Put can take at once, wherever a pipe may be made.
  static constexpr std::size_t kLargestPut = 4096;

  FileWindow();
  ~FileWindow();
  FileWindow(const FileWindow&) = delete;
  FileWindow& operator=(const FileWindow&) = delete;

  // Moves the window to [begin, end) of the file, which must be so long. Where the file
  // cannot be mapped it covers nothing.
  void Map(int fd, std::int64_t begin, std::int64_t end);
  bool Covers(std::int64_t begin, std::int64_t end) const {
    return data_ != nullptr && begin >= begin_ && end <= end_;
  }
  // Puts `text` at `offset` of the file. False if that cannot be done this way (outside the window,
  // too large, no pipe, somebody has made the file shorter): any part of it may be in the file
  // then.
  bool Put(std::string_view text, std::int64_t offset);

 private:
  void Unmap();
  void ClosePipe();

  std::array<int, 2> pipe_ = {-1, -1};  // read end, write end
  char* data_ = nullptr;
  std::int64_t begin_ = 0;  // of the mapping, at the start of a page
  std::int64_t end_ = 0;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_FILE_WINDOW_H_
