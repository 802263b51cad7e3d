// Status: the one carrier of errors inside the library. Our own code does not throw; the borders
// (C API, framework kernels, thread mains) turn foreign exceptions into a Status.
//
// Thread rule: immutable after construction, so one Status may be read from any thread.
#ifndef HOROVOD_TF_COMMON_BASE_STATUS_H_
#define HOROVOD_TF_COMMON_BASE_STATUS_H_

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

namespace horovod_tf {

// The numbers are those of TensorFlow's and Abseil's canonical codes, so a framework adapter maps a
// code by casting it, and the wire carries the same number.
enum class StatusCode : int {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
};

// The code with this number, or nothing: numbers come from the wire and are not trusted.
std::optional<StatusCode> StatusCodeFromInt(int value);
std::string_view StatusCodeName(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // OK

  static Status Ok() { return Status(); }
  static Status Cancelled(std::string message);
  static Status Unknown(std::string message);
  static Status InvalidArgument(std::string message);
  static Status DeadlineExceeded(std::string message);
  static Status NotFound(std::string message);
  static Status ResourceExhausted(std::string message);
  static Status FailedPrecondition(std::string message);
  static Status Aborted(std::string message);
  static Status Unimplemented(std::string message);
  static Status Internal(std::string message);
  static Status Unavailable(std::string message);
  // For codes that come from elsewhere (the wire). REQUIRES: code != kOk.
  static Status FromCode(StatusCode code, std::string message);

  bool ok() const { return rep_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : rep_->code; }
  // Empty when ok().
  const std::string& message() const;
  // "InvalidArgument: text", or "OK".
  std::string ToString() const;

  // The same code with "prefix: " before the text. OK stays OK.
  Status WithContext(std::string_view prefix) const;

 private:
  struct Rep {
    StatusCode code;
    std::string message;
  };
  Status(StatusCode code, std::string message);

  // Shared, so that copies made for every waiting tensor cost no allocation.
  std::shared_ptr<const Rep> rep_;
};

inline std::ostream& operator<<(std::ostream& out, const Status& status) {
  return out << status.ToString();
}

}  // namespace horovod_tf

// Returns from the calling function when `expression` is not OK.
#define HVD_RETURN_IF_ERROR(expression)              \
  do {                                               \
    ::horovod_tf::Status hvd_status_ = (expression); \
    if (!hvd_status_.ok()) return hvd_status_;       \
  } while (false)

#endif  // HOROVOD_TF_COMMON_BASE_STATUS_H_
