// Transport: how control messages travel between ranks. Asynchronous: a send never waits for the
// receiver. Messages of one rank to another arrive whole, once, and in order.
#ifndef HOROVOD_TF_COMMON_TRANSPORT_TRANSPORT_H_
#define HOROVOD_TF_COMMON_TRANSPORT_TRANSPORT_H_

#include <memory>
#include <string>

#include "horovod_tf/common/base/clock.h"
#include "horovod_tf/common/base/status.h"

namespace horovod_tf {

// What the caller of Wait knows about what is to come.
enum class Expectation {
  kNothing,  // nothing of ours is under way
  kAnswer,   // peers owe us a message: worth looking often, where looking is what it takes
};

struct Incoming {
  int from = 0;
  std::string bytes;
};

// One rank's endpoint.
//
// Thread rule: Wake, Abort and health are for any thread; everything else is for the one thread
// that drives the endpoint. No function blocks except Wait, and the destructor for as long as it
// takes to see off what was sent.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Host of this rank, as the topology is computed from it. Equal text = shared memory.
  virtual const std::string& host() const = 0;

  // REQUIRES: 0 <= to < size(), to != rank().
  virtual Status Send(int to, std::string bytes) = 0;
  // To every other rank. A transport with a better way than one by one overrides it.
  virtual Status Broadcast(const std::string& bytes);

  // Takes the next message that has arrived; `*got` says whether there was one. Fails once the
  // endpoint has failed and nothing that arrived before is left.
  virtual Status Receive(Incoming* message, bool* got) = 0;

  // Sleeps until a message is there, Wake was called since the last Wait, the endpoint has failed,
  // or `deadline` has passed; may return early. Burns no CPU while nothing happens.
  virtual void Wait(TimePoint deadline, Expectation expectation) = 0;
  // Ends the current or the next Wait.
  virtual void Wake() = 0;

  // The job has ended by agreement: nothing will be received here any more, and what others still
  // send need not be kept for this rank. For the driving thread, as its last call.
  virtual void Close() {}

  // The job has failed here: tells every peer at once, without waiting for anybody. The first call
  // anywhere decides the text; `cause` is not OK. Later calls do nothing.
  virtual void Abort(const Status& cause) = 0;
  // OK, or why the job has failed: an Abort (here or on a peer, whose rank the text then names) or
  // the loss of a peer. Never goes back to OK. Cheap enough to be asked in a waiting loop.
  virtual Status health() const = 0;
  // health(), after looking for news of failures, where nobody brings them: for the driving thread
  // while it waits for something else than a message.
  virtual Status Poll() { return health(); }
};

}  // namespace horovod_tf

#endif  // HOROVOD_TF_COMMON_TRANSPORT_TRANSPORT_H_
