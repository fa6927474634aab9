// The worker's end of the sequences socket. Commands are idempotent: a Start or Cancel that comes twice changes nothing, so the
// scheduler sends again whatever it doubts. Outputs are kept until acknowledged and sent again from the last index acknowledged,
// so a lost frame delays and never loses. One thread: the loop's.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "proto/codec.h"
#include "proto/sequences.h"
#include "services/common/frame_channel.h"
#include "services/worker/worker_identity.h"
#include "worker/engine.h"

namespace stria {

struct SequenceLinkOptions {
  Duration grace = std::chrono::seconds(30);        // of the scheduler's silence, then its sequences are dropped
  Duration resend_after = std::chrono::seconds(1);  // without an acknowledgement
  Duration hello_every = std::chrono::seconds(1);   // hello and status
  Duration status_every = std::chrono::milliseconds(250);  // status alone, while there is work
};

struct SequenceLinkStats {
  uint64_t starts = 0, cancels = 0, acks = 0;  // commands that were news
  uint64_t duplicates = 0;                     // commands that were not
  uint64_t refused_frames = 0;                 // malformed
  uint64_t resends = 0;                        // times that a sequence's outputs were sent again
  uint64_t dropped_sequences = 0;              // for a scheduler that restarted or went silent
  uint64_t unacknowledged_tokens = 0;          // held now
};

class SequenceLink {
 public:
  // `hello` as it is sent; channel, engine and clock outlive this.
  SequenceLink(WorkerHello hello, SequenceLinkOptions options, FrameChannel& channel, Engine& engine, const Clock& clock);

  // Takes commands that have arrived, at most a batch.
  void TakeCommands();
  // Sends what a turn gave, in one frame where it fits.
  void Publish(std::vector<SequenceOutput> outputs);
  // Hello, status, resends, grace. Often.
  void Tick();
  MonotonicTime next_tick() const;

  // Takes no more sequences: a Start is answered kMoved, so that the scheduler starts it elsewhere.
  void Drain();
  // Ends what still runs in the same way, with all its tokens so far.
  void HandOver();
  // Nothing runs and nothing waits for an acknowledgement.
  bool idle() const { return records_.empty(); }

  uint64_t scheduler() const { return scheduler_; }  // incarnation followed; 0: none
  const SequenceLinkStats& stats() const { return stats_; }
  std::string TakeNote();  // for the log, empty mostly

 private:
  // A sequence from its Start until its end is acknowledged.
  struct Record {
    uint32_t first = 0;             // index of tokens.front(): everything before is acknowledged
    std::deque<TokenOut> tokens;    // not acknowledged
    uint32_t sent = 0;              // tokens before this index were handed to the socket
    bool finish_sent = false;
    FinishReason finish = FinishReason::kNone;
    std::string message;
    KvUsage kv;
    uint64_t epoch = 0;
    MonotonicTime waiting_since;    // for the acknowledgement of the oldest one sent

    uint32_t end() const { return first + static_cast<uint32_t>(tokens.size()); }
    bool unsent() const { return sent < end() || (finish != FinishReason::kNone && !finish_sent); }
    bool unacknowledged() const { return sent > first || finish_sent; }
  };
  using RecordMap = std::map<SequenceName, Record>;

  void Take(const SchedulerHello& hello);
  void Take(const StartSequence& start);
  void Take(const CancelSequence& cancel);
  void Take(const AckSequence& ack);
  void Flush();
  SequenceOutput NextPart(const SequenceName& name, const Record& record, size_t* room) const;
  void MarkSent(const StepOutputs& step);
  void End(const SequenceName& name, FinishReason reason, std::string message);
  void Forget(RecordMap::iterator it);
  void DropAll(const std::string& why);
  void SendStatus();

  const WorkerHello hello_;
  const SequenceLinkOptions options_;
  FrameChannel& channel_;
  Engine& engine_;
  const Clock& clock_;

  uint64_t scheduler_ = 0;
  MonotonicTime last_heard_;
  MonotonicTime next_hello_, next_status_, next_flush_;
  bool scheduler_changed_ = false;
  bool draining_ = false;
  RecordMap records_;
  std::set<SequenceName> ended_;        // acknowledged: a late duplicate must not start them again
  std::deque<SequenceName> ended_order_;
  SequenceLinkStats stats_;
  std::string note_;
};

}  // namespace stria
