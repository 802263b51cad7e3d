#include "horovod_tf/common/protocol/negotiator.h"

#include <algorithm>
#include <utility>

#include "horovod_tf/common/base/check.h"
#include "horovod_tf/common/protocol/replica_table.h"
#include "horovod_tf/common/protocol/request_checks.h"

namespace horovod_tf {
namespace {

// Fields that mean nothing to the kind must not make requests differ.
Request Normal(Request request) {
  if (!Info(request.kind).has_root) request.root_rank = 0;
  if (Info(request.kind).reduces) return request;
  if (!AveragesRows(request)) request.reduce_op = ReduceOp::kSum;
  request.prescale = 1.0;
  request.postscale = 1.0;
  return request;
}

bool IsNormal(const Request& request) {
  if (!Info(request.kind).has_root && request.root_rank != 0) return false;
  return Info(request.kind).reduces ||
         ((request.reduce_op == ReduceOp::kSum || AveragesRows(request)) &&
          request.prescale == 1.0 && request.postscale == 1.0);
}

}  // namespace

// What a rank asks for that has joined: held back until the join is over.
struct HeldRequest {
  Request request;
  Token token;
};

class Negotiator::Impl {
 public:
  Impl(int rank, int size) : rank_(rank), table_(rank) {
    HVD_CHECK(0 <= rank && rank < size, "a rank of the process set");
  }

  void Submit(const Request& request, Token token);
  void Join(Token token);
  bool Withdraw(const std::string& name, std::string reason);
  void RequestShutdown(std::string reason);
  bool TakeAnnounce(Announce* announce);
  Status OnLog(const Log& log, std::vector<Response>* responses);
  std::vector<Token> InFlight() const { return WithJoin(table_.Tokens()); }

 private:
  // One for each kind of record.
  Status Apply(const DefineRecord& record, std::vector<Response>* responses);
  Status Apply(const ExecuteRecord& record, std::vector<Response>* responses);
  Status Apply(const ExecuteOnceRecord& record, std::vector<Response>* responses);
  Status Apply(const ForgetRecord& record, std::vector<Response>* responses);
  Status Apply(const ErrorRecord& record, std::vector<Response>* responses);
  Status Apply(const ShutdownRecord& record, std::vector<Response>* responses);
  Status Apply(const JoinRecord& record, std::vector<Response>* responses);

  // Null: nothing is known under this name.
  Status CheckAnnounced(const std::string& name, const ReplicaEntry* entry) const;
  static void Answer(ReplicaEntry* entry, const TensorDefinition& definition, Response* response);
  Status CannotFuse(const TensorDefinition& a, const TensorDefinition& b) const;
  void Unqueue(const std::string& name, const ReplicaEntry& entry);
  bool WithdrawJoin(std::string reason);
  bool WithdrawHeld(const std::string& name);
  Token EndJoin();
  // Adds the join and what it holds back.
  std::vector<Token> WithJoin(std::vector<Token> tokens) const;

  const int rank_;
  ReplicaTable table_;
  Announce next_;  // what TakeAnnounce will hand out
  enum class JoinState { kNone, kQueued, kAnnounced, kWithdrawn };
  JoinState join_ = JoinState::kNone;
  Token join_token_ = 0;
  std::vector<HeldRequest> held_;  // only while there is a join
  bool tell_applied_ = false;      // though there may be nothing else to say
  bool shutdown_asked_ = false;
  bool stopped_ = false;
  std::uint64_t applied_ = 0;
};

void Negotiator::Impl::Submit(const Request& request, Token token) {
  if (!IsNormal(request)) return Submit(Normal(request), token);
  if (join_ != JoinState::kNone) {
    held_.push_back({request, token});
    return;
  }
  ReplicaEntry& entry = table_.At(request.name);
  HVD_CHECK(entry.state == FlightState::kNone, "one submission of a name at a time");
  entry.token = token;
  if (entry.id.has_value() && request == entry.own) {
    entry.state = FlightState::kQueuedById;
    next_.known.push_back(*entry.id);
  } else {
    entry.state = FlightState::kQueuedInFull;
    entry.in_full = std::make_unique<const Request>(request);
    next_.requests.push_back(request);
  }
}

void Negotiator::Impl::Join(Token token) {
  HVD_CHECK(join_ == JoinState::kNone, "one join at a time");
  join_ = JoinState::kQueued;
  join_token_ = token;
  next_.joins = true;
}

// True: it had not been announced.
bool Negotiator::Impl::WithdrawJoin(std::string reason) {
  if (join_ == JoinState::kQueued) {
    next_.joins = false;
    EndJoin();
    return true;
  }
  if (join_ == JoinState::kAnnounced) {
    join_ = JoinState::kWithdrawn;
    next_.withdrawn.push_back({std::string(kJoinName), std::move(reason), /*announced=*/true});
  }
  return false;
}

bool Negotiator::Impl::WithdrawHeld(const std::string& name) {
  const auto held = std::find_if(held_.begin(), held_.end(), [&name](const HeldRequest& it) {
    return it.request.name == name;
  });
  if (held == held_.end()) return false;
  held_.erase(held);
  return true;
}

// What was held back is submitted now.
Token Negotiator::Impl::EndJoin() {
  join_ = JoinState::kNone;
  for (const HeldRequest& held : std::exchange(held_, {})) Submit(held.request, held.token);
  return join_token_;
}

std::vector<Token> Negotiator::Impl::WithJoin(std::vector<Token> tokens) const {
  if (join_ == JoinState::kNone) return tokens;
  tokens.push_back(join_token_);
  for (const HeldRequest& held : held_) tokens.push_back(held.token);
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

bool Negotiator::Impl::Withdraw(const std::string& name, std::string reason) {
  if (join_ != JoinState::kNone) {
    if (name == kJoinName) return WithdrawJoin(std::move(reason));
    if (WithdrawHeld(name)) return true;
  }
  ReplicaEntry* const entry = table_.Find(name);
  HVD_CHECK(entry != nullptr && entry->state != FlightState::kNone, "only what is in flight");
  if (entry->state < FlightState::kAnnouncedById) {
    Unqueue(name, *entry);
    entry->Land();
    next_.withdrawn.push_back({name, std::move(reason), /*announced=*/false});
    table_.Tidy(name);
    return true;
  }
  if (entry->withdrawn != nullptr) return false;
  entry->withdrawn = std::make_unique<const std::string>(reason);
  next_.withdrawn.push_back({name, std::move(reason), /*announced=*/true});
  return false;
}

void Negotiator::Impl::RequestShutdown(std::string reason) {
  if (std::exchange(shutdown_asked_, true)) return;  // the first reason counts
  next_.shutdown = true;
  next_.shutdown_reason = std::move(reason);
}

bool Negotiator::Impl::TakeAnnounce(Announce* announce) {
  if (stopped_) return false;
  if (next_.known.empty() && next_.requests.empty() && next_.withdrawn.empty() && !next_.shutdown &&
      !next_.joins && !tell_applied_) {
    return false;
  }
  tell_applied_ = false;
  if (next_.joins) join_ = JoinState::kAnnounced;
  std::sort(next_.known.begin(), next_.known.end());
  for (const TensorId id : next_.known) table_.Find(id)->state = FlightState::kAnnouncedById;
  Announce after;  // the message after this one
  for (const Request& request : next_.requests) {
    ReplicaEntry& entry = table_.At(request.name);
    entry.state = FlightState::kAnnouncedInFull;
    // The coordinator has forgotten its id, and with it that it was withdrawn.
    if (entry.withdrawn != nullptr)
      after.withdrawn.push_back({request.name, *entry.withdrawn, /*announced=*/true});
  }
  *announce = std::exchange(next_, std::move(after));
  announce->applied = applied_;
  return true;
}

Status Negotiator::Impl::OnLog(const Log& log, std::vector<Response>* responses) {
  table_.DropReplaced();
  if (log.first_sequence != applied_) {
    return table_.Violation("records from number " + std::to_string(log.first_sequence) +
                            " on have come where " + std::to_string(applied_) + " is next");
  }
  for (const LogRecord& record : log.records) {
    if (stopped_) return table_.Violation("a record follows the shutdown");
    HVD_RETURN_IF_ERROR(std::visit([&](const auto& it) { return Apply(it, responses); }, record));
    ++applied_;
  }
  return Status::Ok();
}

Status Negotiator::Impl::Apply(const DefineRecord& record, std::vector<Response>*) {
  return table_.Define(record);
}

Status Negotiator::Impl::Apply(const ExecuteRecord& record, std::vector<Response>* responses) {
  Response response;
  response.tokens.reserve(record.ids.size());
  response.definitions.reserve(record.ids.size());
  for (const TensorId id : record.ids) {
    ReplicaEntry* const entry = table_.Find(id);
    if (entry == nullptr) {
      return table_.Violation("id " + std::to_string(id) + " is to be executed but has no meaning");
    }
    const TensorId first = record.ids.front();
    const std::uint32_t fusion_class = table_.fusion_class(id);
    if (id != first &&
        (fusion_class == kNeverFused || fusion_class != table_.fusion_class(first))) {
      return CannotFuse(table_.definition(first), table_.definition(id));
    }
    HVD_RETURN_IF_ERROR(CheckAnnounced(entry->own.name, entry));
    // What was announced by id equals the definition since it was submitted: Define sees to that.
    if (entry->state == FlightState::kAnnouncedInFull) {
      HVD_RETURN_IF_ERROR(table_.CheckSubmitted(*entry, table_.definition(id)));
    }
    Answer(entry, table_.definition(id), &response);
  }
  responses->push_back(std::move(response));
  return Status::Ok();
}

Status Negotiator::Impl::Apply(const ExecuteOnceRecord& record, std::vector<Response>* responses) {
  const std::string& name = record.definition.common.name;
  const std::vector<std::uint32_t>& absent = record.definition.absent;
  Response response;
  if (std::binary_search(absent.begin(), absent.end(), static_cast<std::uint32_t>(rank_))) {
    if (join_ < JoinState::kAnnounced) {
      return table_.Violation("tensor '" + name + "' is to be executed without rank " +
                              std::to_string(rank_) + ", which has not joined");
    }
    response.definitions.push_back(&table_.Keep(record.definition));
    responses->push_back(std::move(response));
    return Status::Ok();
  }
  ReplicaEntry* const entry = table_.Find(name);
  HVD_RETURN_IF_ERROR(CheckAnnounced(name, entry));
  HVD_RETURN_IF_ERROR(table_.CheckSubmitted(*entry, record.definition));
  Answer(entry, table_.Keep(record.definition), &response);
  table_.Tidy(name);
  responses->push_back(std::move(response));
  return Status::Ok();
}

Status Negotiator::Impl::CheckAnnounced(const std::string& name, const ReplicaEntry* entry) const {
  if (entry == nullptr || entry->state < FlightState::kAnnouncedById) {
    return table_.Violation("tensor '" + name + "' is to be executed but rank " +
                            std::to_string(rank_) + " has not announced it");
  }
  return Status::Ok();
}

void Negotiator::Impl::Answer(ReplicaEntry* entry, const TensorDefinition& definition,
                              Response* response) {
  entry->Land();
  response->tokens.push_back(entry->token);
  response->definitions.push_back(&definition);
}

Status Negotiator::Impl::CannotFuse(const TensorDefinition& a, const TensorDefinition& b) const {
  return table_.Violation("tensors '" + a.common.name + "' and '" + b.common.name +
                          "' are to be executed as one operation, which cannot be both " +
                          Describe(a.RequestOf(rank_)) + " and " + Describe(b.RequestOf(rank_)));
}

// The coordinator has dropped, or will drop, what was announced by these ids: it is announced again
// in full.
Status Negotiator::Impl::Apply(const ForgetRecord& record, std::vector<Response>*) {
  for (const TensorId id : record.ids) {
    ReplicaEntry* const entry = table_.Find(id);
    if (entry == nullptr) {
      return table_.Violation("id " + std::to_string(id) +
                              " is to be forgotten but has no meaning");
    }
    table_.Forget(id);
    const std::string name = entry->own.name;
    if (entry->state == FlightState::kQueuedById || entry->state == FlightState::kAnnouncedById) {
      if (entry->state == FlightState::kQueuedById) {
        next_.known.erase(std::find(next_.known.begin(), next_.known.end(), id));
      }
      entry->state = FlightState::kQueuedInFull;
      entry->in_full = std::make_unique<const Request>(std::move(entry->own));
      next_.requests.push_back(*entry->in_full);
    }
    table_.Tidy(name);
  }
  // A join does not count before the coordinator knows that nothing will be announced again.
  if (join_ >= JoinState::kAnnounced) tell_applied_ = true;
  return Status::Ok();
}

Status Negotiator::Impl::Apply(const ErrorRecord& record, std::vector<Response>* responses) {
  const std::vector<std::uint32_t>& ranks = record.ranks;
  const auto rank = static_cast<std::uint32_t>(rank_);
  if (!ranks.empty() && !std::binary_search(ranks.begin(), ranks.end(), rank)) return Status::Ok();
  Response response;
  response.type = Response::Type::kError;
  response.status = record.status;
  for (const std::string& name : record.names) {
    if (join_ == JoinState::kWithdrawn && name == kJoinName) {
      response.tokens.push_back(EndJoin());
      continue;
    }
    ReplicaEntry* const entry = table_.Find(name);
    if (entry == nullptr || entry->state == FlightState::kNone) continue;
    Unqueue(name, *entry);
    entry->Land();
    response.tokens.push_back(entry->token);
    table_.Tidy(name);
  }
  if (!response.tokens.empty()) responses->push_back(std::move(response));
  return Status::Ok();
}

// What has been answered must not be announced any more.
void Negotiator::Impl::Unqueue(const std::string& name, const ReplicaEntry& entry) {
  if (entry.state == FlightState::kQueuedById) {
    next_.known.erase(std::find(next_.known.begin(), next_.known.end(), *entry.id));
  } else if (entry.state == FlightState::kQueuedInFull) {
    next_.requests.erase(std::find_if(next_.requests.begin(), next_.requests.end(),
                                      [&](const Request& it) { return it.name == name; }));
  }
}

Status Negotiator::Impl::Apply(const ShutdownRecord& record, std::vector<Response>* responses) {
  stopped_ = true;
  Response response;
  response.type = Response::Type::kShutdown;
  response.status = record.status;
  response.tokens = WithJoin(table_.LandAll());
  join_ = JoinState::kNone;
  held_.clear();
  responses->push_back(std::move(response));
  return Status::Ok();
}

Status Negotiator::Impl::Apply(const JoinRecord& record, std::vector<Response>* responses) {
  if (join_ < JoinState::kAnnounced) {
    return table_.Violation("all ranks have joined, but rank " + std::to_string(rank_) +
                            " has not");
  }
  Response response;
  response.type = Response::Type::kJoined;
  response.last_rank = record.last_rank;
  response.tokens.push_back(EndJoin());
  responses->push_back(std::move(response));
  return Status::Ok();
}

Negotiator::Negotiator(int rank, int size) : impl_(std::make_unique<Impl>(rank, size)) {}
Negotiator::~Negotiator() = default;

void Negotiator::Submit(const Request& request, Token token) { impl_->Submit(request, token); }
void Negotiator::Join(Token token) { impl_->Join(token); }
bool Negotiator::Withdraw(const std::string& name, std::string reason) {
  return impl_->Withdraw(name, std::move(reason));
}
void Negotiator::RequestShutdown(std::string reason) { impl_->RequestShutdown(std::move(reason)); }
bool Negotiator::TakeAnnounce(Announce* announce) { return impl_->TakeAnnounce(announce); }
Status Negotiator::OnLog(const Log& log, std::vector<Response>* responses) {
  return impl_->OnLog(log, responses);
}
std::vector<Token> Negotiator::InFlight() const { return impl_->InFlight(); }

}  // namespace horovod_tf
