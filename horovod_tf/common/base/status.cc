#include "horovod_tf/common/base/status.h"

#include <array>
#include <utility>

#include "horovod_tf/common/base/check.h"

namespace horovod_tf {
namespace {

struct CodeRow {
  StatusCode code;
  std::string_view name;
};

constexpr std::array<CodeRow, 12> kCodes = {{
    {StatusCode::kOk, "OK"},
    {StatusCode::kCancelled, "Cancelled"},
    {StatusCode::kUnknown, "Unknown"},
    {StatusCode::kInvalidArgument, "InvalidArgument"},
    {StatusCode::kDeadlineExceeded, "DeadlineExceeded"},
    {StatusCode::kNotFound, "NotFound"},
    {StatusCode::kResourceExhausted, "ResourceExhausted"},
    {StatusCode::kFailedPrecondition, "FailedPrecondition"},
    {StatusCode::kAborted, "Aborted"},
    {StatusCode::kUnimplemented, "Unimplemented"},
    {StatusCode::kInternal, "Internal"},
    {StatusCode::kUnavailable, "Unavailable"},
}};

}  // namespace

std::optional<StatusCode> StatusCodeFromInt(int value) {
  for (const CodeRow& row : kCodes) {
    if (static_cast<int>(row.code) == value) return row.code;
  }
  return std::nullopt;
}

std::string_view StatusCodeName(StatusCode code) {
  for (const CodeRow& row : kCodes) {
    if (row.code == code) return row.name;
  }
  return "Unknown";
}

Status::Status(StatusCode code, std::string message)
    : rep_(std::make_shared<const Rep>(Rep{code, std::move(message)})) {}

Status Status::Cancelled(std::string message) {
  return {StatusCode::kCancelled, std::move(message)};
}
Status Status::Unknown(std::string message) { return {StatusCode::kUnknown, std::move(message)}; }
Status Status::InvalidArgument(std::string message) {
  return {StatusCode::kInvalidArgument, std::move(message)};
}
Status Status::DeadlineExceeded(std::string message) {
  return {StatusCode::kDeadlineExceeded, std::move(message)};
}
Status Status::NotFound(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
Status Status::ResourceExhausted(std::string message) {
  return {StatusCode::kResourceExhausted, std::move(message)};
}
Status Status::FailedPrecondition(std::string message) {
  return {StatusCode::kFailedPrecondition, std::move(message)};
}
Status Status::Aborted(std::string message) { return {StatusCode::kAborted, std::move(message)}; }
Status Status::Unimplemented(std::string message) {
  return {StatusCode::kUnimplemented, std::move(message)};
}
Status Status::Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }
Status Status::Unavailable(std::string message) {
  return {StatusCode::kUnavailable, std::move(message)};
}

Status Status::FromCode(StatusCode code, std::string message) {
  HVD_CHECK(code != StatusCode::kOk, "an error needs an error code");
  return {code, std::move(message)};
}

const std::string& Status::message() const {
  // Never destroyed: threads may still ask while the process ends.
  static const std::string* const empty = std::make_unique<std::string>().release();
  return ok() ? *empty : rep_->message;
}

std::string Status::ToString() const {
  if (ok()) return "OK";
  return std::string(StatusCodeName(rep_->code)) + ": " + rep_->message;
}

Status Status::WithContext(std::string_view prefix) const {
  if (ok()) return *this;
  return {rep_->code, std::string(prefix) + ": " + rep_->message};
}

}  // namespace horovod_tf
