// JsonArrayFile: a file that holds one JSON array and only grows. It can be parsed whenever the
// writer is not in the middle of a step, also after the writer was killed; a reader that looks
// during a step may find a torn end, and has to read again.
#ifndef HOROVOD_TF_COMMON_RUNTIME_JSON_ARRAY_FILE_H_
#define HOROVOD_TF_COMMON_RUNTIME_JSON_ARRAY_FILE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "horovod_tf/common/base/status.h"
#include "horovod_tf/common/runtime/file_window.h"

namespace horovod_tf {

// What is added goes on top of the closing bracket and ends with a new one, in one step (see
// FileWindow) if the file can be mapped and the step is no larger than a page. Otherwise the step
// is a pwrite, which a kill can cut. The file is kept longer than its text, with blanks: there is
// something to map, and space cannot run out in the middle of a step. They go when it is closed.
//
// Thread rule: one thread at a time.
class JsonArrayFile {
 public:
  JsonArrayFile() = default;
  ~JsonArrayFile();
  JsonArrayFile(const JsonArrayFile&) = delete;
  JsonArrayFile& operator=(const JsonArrayFile&) = delete;

  // Makes the file, or empties the one that is there, and writes an array with this one element.
  // Never waits for anybody (a named pipe is refused). REQUIRES: called once.
  Status Open(const std::string& path, std::string_view first_element);

  // Adds one element; it is in the file after the next Commit, perhaps before. After a failure,
  // which the file keeps, nothing is added any more.
  void Add(std::string_view element);
  // The first failure, if there was one.
  Status Commit();

 private:
  // Puts `text` and the closing bracket at `end_`.
  void Write(std::string_view text);
  // Makes the file long enough for `size` bytes at `end_`.
  Status MakeRoom(std::int64_t size);
  Status PwriteAll(std::string_view text, std::int64_t offset);
  // "cannot open PATH: the system's reason".
  std::string SystemError(std::string_view what) const;

  std::string path_;
  int fd_ = -1;
  std::int64_t end_ = 0;     // where the closing bracket begins
  std::int64_t length_ = 0;  // of the file, blanks included
  FileWindow window_;
  std::string buffer_;  // elements that are not in the file yet, each with its comma
  Status failure_;
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_RUNTIME_JSON_ARRAY_FILE_H_
