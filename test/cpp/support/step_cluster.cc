#include "test/cpp/support/step_cluster.h"

#include <utility>
#include <variant>

#include "horovod_tf/common/protocol/withdrawals.h"

namespace horovod_tf {

StepCluster::StepCluster(int size, CoordinatorOptions options, NegotiationObserver* observer)
    : coordinator_(
          [&] {
            options.size = size;
            return options;
          }(),
          observer) {
  for (int rank = 0; rank < size; ++rank) {
    ranks_.emplace_back();
    ranks_.back().negotiator = std::make_unique<Negotiator>(rank, size);
  }
}

CoordinatorOptions StepCluster::DefaultOptions() {
  CoordinatorOptions options;
  options.stall.warning_time = FromSeconds(60);
  return options;
}

Token StepCluster::Submit(int rank, Request request) {
  Rank& it = At(rank);
  const Token token = it.names.size();
  it.names.push_back(request.name);
  it.answers.push_back(0);
  it.negotiator->Submit(std::move(request), token);
  return token;
}

Token StepCluster::Join(int rank) {
  Rank& it = At(rank);
  const Token token = it.names.size();
  it.names.emplace_back(kJoinName);
  it.answers.push_back(0);
  it.negotiator->Join(token);
  return token;
}

void StepCluster::SubmitEverywhere(const Request& request) {
  for (int rank = 0; rank < size(); ++rank) Submit(rank, request);
}

void StepCluster::Withdraw(int rank, const std::string& name, const std::string& reason) {
  Rank& it = At(rank);
  Response response;
  response.type = Response::Type::kError;
  response.status = WithdrawnStatus(reason);
  for (const Token token : it.negotiator->InFlight()) {
    if (it.names[token] == name) response.tokens.push_back(token);
  }
  if (it.negotiator->Withdraw(name, reason)) Record(&it, response);
}

void StepCluster::RequestShutdown(int rank, const std::string& reason) {
  At(rank).negotiator->RequestShutdown(reason);
}

void StepCluster::Keep(Status status) {
  if (failure_.ok()) failure_ = std::move(status);
}

template <typename T>
bool StepCluster::Decode(std::deque<std::string>* queue, T* message) {
  const std::string bytes = std::move(queue->front());
  queue->pop_front();
  Message decoded;
  std::uint32_t process_set = 99;
  const Status status = DecodeMessage(bytes, DecodeLimits{size()}, &decoded, &process_set);
  if (!status.ok()) {
    Keep(status);
    return false;
  }
  if (process_set != kGlobalProcessSet || !std::holds_alternative<T>(decoded)) {
    Keep(Status::Internal("a message came back as something else"));
    return false;
  }
  *message = std::move(std::get<T>(decoded));
  return true;
}

bool StepCluster::Announce(int rank) {
  Rank& it = At(rank);
  ::horovod_tf::Announce announce;
  if (!it.negotiator->TakeAnnounce(&announce)) return false;
  it.to_coordinator.push_back(EncodeMessage(std::move(announce)));
  it.last_announce_bytes = it.to_coordinator.back().size();
  return true;
}

bool StepCluster::Collect(int rank) {
  Rank& it = At(rank);
  if (it.to_coordinator.empty()) return false;
  ::horovod_tf::Announce announce;
  if (Decode(&it.to_coordinator, &announce)) Keep(coordinator_.OnAnnounce(rank, announce, now));
  return true;
}

bool StepCluster::Advance() {
  Log log;
  coordinator_.Advance(now, &log);
  if (log.records.empty()) return false;
  log_.insert(log_.end(), log.records.begin(), log.records.end());
  const std::string bytes = EncodeMessage(std::move(log));
  for (Rank& rank : ranks_) rank.from_coordinator.push_back(bytes);
  return true;
}

bool StepCluster::Deliver(int rank) {
  Rank& it = At(rank);
  if (it.from_coordinator.empty()) return false;
  Log log;
  std::vector<Response> responses;
  if (Decode(&it.from_coordinator, &log)) Keep(it.negotiator->OnLog(log, &responses));
  for (const Response& response : responses) Record(&it, response);
  return true;
}

void StepCluster::Record(Rank* rank, const Response& response) {
  Event event;
  event.type = response.type;
  event.status = response.status;
  event.last_rank = response.last_rank;
  for (const Token token : response.tokens) {
    ++rank->answers[token];
    event.names.push_back(rank->names[token]);
  }
  for (const TensorDefinition* definition : response.definitions) {
    event.definitions.push_back(*definition);
  }
  rank->events.push_back(std::move(event));
}

void StepCluster::Cycle() {
  for (int rank = 0; rank < size(); ++rank) Announce(rank);
  for (int rank = 0; rank < size(); ++rank) {
    while (Collect(rank)) {
    }
  }
  Advance();
  for (int rank = 0; rank < size(); ++rank) {
    while (Deliver(rank)) {
    }
  }
}

void StepCluster::Settle() {
  for (int cycles = 0; cycles < 1000; ++cycles) {
    bool moved = false;
    for (int rank = 0; rank < size(); ++rank) moved |= Announce(rank);
    for (int rank = 0; rank < size(); ++rank) moved |= Collect(rank);
    moved |= Advance();
    for (int rank = 0; rank < size(); ++rank) moved |= Deliver(rank);
    if (!moved) return;
  }
  Keep(Status::Internal("the negotiation does not come to rest"));
}

std::string StepCluster::Executed(int rank) const {
  std::string text;
  for (const Event& event : events(rank)) {
    if (event.type != Response::Type::kExecute) continue;
    if (!text.empty()) text += ' ';
    for (std::size_t i = 0; i < event.names.size(); ++i) {
      if (i > 0) text += '+';
      text += event.names[i];
    }
  }
  return text;
}

std::vector<StepCluster::Event> StepCluster::errors(int rank) const {
  std::vector<Event> errors;
  for (const Event& event : events(rank)) {
    if (event.type == Response::Type::kError) errors.push_back(event);
  }
  return errors;
}

bool StepCluster::InFlight(int rank, const std::string& name) const {
  for (const Token token : InFlight(rank)) {
    if (At(rank).names[token] == name) return true;
  }
  return false;
}

bool StepCluster::Quiet() const {
  for (const Rank& rank : ranks_) {
    if (!rank.to_coordinator.empty() || !rank.from_coordinator.empty()) return false;
  }
  return true;
}

namespace {

Request MakeRequest(CollectiveKind kind, const std::string& name, TensorShape shape) {
  Request request;
  request.name = name;
  request.kind = kind;
  request.shape = std::move(shape);
  return request;
}

}  // namespace

Request AllreduceRequest(const std::string& name, TensorShape shape) {
  return MakeRequest(CollectiveKind::kAllreduce, name, std::move(shape));
}

Request AllgatherRequest(const std::string& name, TensorShape shape) {
  return MakeRequest(CollectiveKind::kAllgather, name, std::move(shape));
}

Request BroadcastRequest(const std::string& name, TensorShape shape, int root_rank) {
  Request request = MakeRequest(CollectiveKind::kBroadcast, name, std::move(shape));
  request.root_rank = root_rank;
  return request;
}

}  // namespace horovod_tf
