#include "services/worker/sequence_link.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/random.h"
#include "services/worker/fake_channel.h"
#include "services/worker/fake_engine.h"

namespace stria {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint64_t kScheduler = 100;

class SequenceLinkTest : public testing::Test {
 protected:
  SequenceLinkTest() {
    WorkerHello hello;
    hello.worker = "w";
    hello.incarnation = 1;
    hello.model = "model";
    link_.emplace(hello, SequenceLinkOptions{}, channel_, engine_, clock_);
  }

  static StartSequence StartOf(uint64_t id, uint32_t tokens, uint32_t attempt = 0, uint32_t delivered = 0) {
    StartSequence start;
    start.name = {id, attempt};
    start.prompt.assign(delivered + 2, 1);
    start.delivered = delivered;
    start.max_new_tokens = tokens;
    return start;
  }
  template <typename Command>
  void Arrive(const Command& command) {
    channel_.arriving.push_back(Encode(command));
  }
  // As the loop does it.
  void Round() {
    link_->TakeCommands();
    if (engine_.HasWork()) link_->Publish(engine_.Turn().outputs);
    link_->Tick();
    for (const std::string& frame : std::exchange(channel_.sent, {})) {
      const auto decoded = DecodeToScheduler(frame);
      ASSERT_TRUE(decoded.ok()) << decoded.status();
      if (const auto* step = std::get_if<StepOutputs>(&*decoded)) {
        ++frames_;
        for (const SequenceOutput& output : step->outputs) outputs_.push_back(output);
      } else if (const auto* status = std::get_if<WorkerStatus>(&*decoded)) {
        statuses_.push_back(*status);
      } else {
        ++hellos_;
      }
    }
  }
  void Greet(uint64_t scheduler = kScheduler) {
    Arrive(SchedulerHello{scheduler});
    Round();
  }
  std::vector<SequenceOutput> Take() { return std::exchange(outputs_, {}); }

  FakeClock clock_;
  FakeChannel channel_;
  FakeEngine engine_{2};
  std::optional<SequenceLink> link_;
  std::vector<SequenceOutput> outputs_;
  std::vector<WorkerStatus> statuses_;
  int frames_ = 0, hellos_ = 0;
};

TEST_F(SequenceLinkTest, OneFrameAStepForAllSequences) {
  Greet();
  for (uint64_t id = 1; id <= 3; ++id) Arrive(StartOf(id, 10));
  frames_ = 0;
  Round();
  EXPECT_EQ(frames_, 1);
  const auto outputs = Take();
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_EQ(outputs[1].name, (SequenceName{2, 0}));
  EXPECT_EQ(outputs[1].first_index, 0u);
  EXPECT_EQ(outputs[1].tokens.at(0).token, 2000);
  Round();
  EXPECT_EQ(frames_, 2);
  for (const SequenceOutput& output : Take()) {
    EXPECT_EQ(output.first_index, 1u);  // only what is new
    EXPECT_EQ(output.tokens.size(), 1u);
  }
}

TEST_F(SequenceLinkTest, TokenIndicesGoOnFromWhatWasDelivered) {
  Greet();
  Arrive(StartOf(1, 7, 3, 5));
  Round();
  const auto outputs = Take();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].first_index, 5u);
}

TEST_F(SequenceLinkTest, DuplicateStartsChangeNothing) {
  Greet();
  for (int i = 0; i < 3; ++i) Arrive(StartOf(1, 2));
  Round();
  Round();
  EXPECT_EQ(engine_.starts, 1);
  Arrive(StartOf(1, 2));  // ended, not acknowledged
  Round();
  Arrive(AckSequence{{1, 0}, 2, true});
  Arrive(StartOf(1, 2));  // ended and acknowledged
  Round();
  Round();
  EXPECT_EQ(engine_.starts, 1);
  EXPECT_EQ(link_->stats().duplicates, 4u);
  EXPECT_TRUE(link_->idle());
}

TEST_F(SequenceLinkTest, OutputsAreSentAgainFromTheLastAcknowledged) {
  Greet();
  Arrive(StartOf(1, 5));
  for (int i = 0; i < 5; ++i) Round();
  Take();
  Arrive(AckSequence{{1, 0}, 2, false});
  Round();
  EXPECT_TRUE(Take().empty());  // not before its time
  clock_.Advance(seconds(1));
  Round();
  auto again = Take();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].first_index, 2u);
  ASSERT_EQ(again[0].tokens.size(), 3u);
  EXPECT_EQ(again[0].tokens[0].token, 1002);
  EXPECT_EQ(again[0].finish, FinishReason::kLength);
  Arrive(AckSequence{{1, 0}, 5, false});  // all tokens, not the end
  Round();
  clock_.Advance(seconds(1));
  Round();
  again = Take();
  ASSERT_EQ(again.size(), 1u);
  EXPECT_TRUE(again[0].tokens.empty());
  EXPECT_EQ(again[0].first_index, 5u);
  EXPECT_EQ(again[0].finish, FinishReason::kLength);
  Arrive(AckSequence{{1, 0}, 5, true});
  Round();
  clock_.Advance(seconds(5));
  Round();
  EXPECT_TRUE(Take().empty());
  EXPECT_TRUE(link_->idle());
}

TEST_F(SequenceLinkTest, NothingIsLostWhileNobodyIsConnected) {
  Greet();
  Arrive(StartOf(1, 20));
  Round();
  channel_.connected = false;
  for (int i = 0; i < 10; ++i) Round();
  channel_.connected = true;
  clock_.Advance(milliseconds(20));
  Take();
  Round();
  const auto outputs = Take();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].first_index, 1u);
  EXPECT_EQ(outputs[0].tokens.size(), 11u);
}

TEST_F(SequenceLinkTest, CancelAnswersAlwaysAndOnce) {
  Greet();
  Arrive(StartOf(1, 100));
  Round();
  Take();
  for (int i = 0; i < 3; ++i) Arrive(CancelSequence{{1, 0}});
  Arrive(CancelSequence{{2, 0}});  // whose Start never came
  Round();
  auto outputs = Take();
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[0].finish, FinishReason::kCancelled);
  EXPECT_EQ(outputs[0].first_index, 1u);
  EXPECT_EQ(outputs[0].kv.tokens, 5u);  // what the cache held
  EXPECT_EQ(outputs[1].name, (SequenceName{2, 0}));
  EXPECT_EQ(outputs[1].finish, FinishReason::kCancelled);
  EXPECT_FALSE(engine_.HasWork());
  Arrive(StartOf(2, 100));  // and must not run when it comes now
  Arrive(AckSequence{{1, 0}, 1, true});
  Arrive(AckSequence{{2, 0}, 0, true});
  Arrive(AckSequence{{2, 0}, 0, true});
  Arrive(CancelSequence{{1, 0}});
  Arrive(StartOf(2, 100));
  Round();
  clock_.Advance(seconds(2));
  Round();
  EXPECT_TRUE(Take().empty());
  EXPECT_TRUE(link_->idle());
  EXPECT_EQ(engine_.starts, 1);
}

TEST_F(SequenceLinkTest, RefusedStartIsAnErrorOutput) {
  Greet();
  StartSequence bad = StartOf(1, 5);
  bad.prompt[0] = -1;
  Arrive(bad);
  Round();
  const auto outputs = Take();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].finish, FinishReason::kError);
  EXPECT_EQ(outputs[0].message, "prompt token -1 is not in the vocabulary");
}

TEST_F(SequenceLinkTest, NewerAttemptReplacesOlder) {
  Greet();
  Arrive(StartOf(1, 100, 0));
  Round();
  Arrive(StartOf(1, 100, 1));
  Arrive(StartOf(1, 100, 0));
  Take();
  Round();
  const auto outputs = Take();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].name, (SequenceName{1, 1}));
  EXPECT_EQ(engine_.stats().running, 1u);
}

TEST_F(SequenceLinkTest, NewSchedulerStartsFromNothing) {
  Greet();
  Arrive(StartOf(1, 100));
  Round();
  Take();
  hellos_ = 0;
  // The new one uses the same names at once.
  Arrive(SchedulerHello{kScheduler + 1});
  Arrive(StartOf(1, 100));
  Round();
  EXPECT_EQ(link_->stats().dropped_sequences, 1u);
  EXPECT_EQ(hellos_, 1);  // it is told who is here
  EXPECT_TRUE(Take().empty());
  Round();
  const auto outputs = Take();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].first_index, 0u);
  EXPECT_EQ(outputs[0].finish, FinishReason::kNone);
  EXPECT_EQ(engine_.starts, 2);
  EXPECT_EQ(link_->scheduler(), kScheduler + 1);
}

TEST_F(SequenceLinkTest, CommandsBeforeAnyHelloWait) {
  Arrive(StartOf(1, 5));
  Arrive(CancelSequence{{1, 0}});
  Round();
  EXPECT_EQ(engine_.starts, 0);
  EXPECT_TRUE(link_->idle());
  Greet();
  Arrive(StartOf(1, 5));
  Round();
  EXPECT_EQ(engine_.starts, 1);
}

TEST_F(SequenceLinkTest, SilenceBeyondTheGraceDropsSequences) {
  Greet();
  Arrive(StartOf(1, 100000));
  Round();
  clock_.Advance(seconds(29));
  Greet();  // heard in time
  clock_.Advance(seconds(29));
  Round();
  EXPECT_EQ(link_->stats().dropped_sequences, 0u);
  clock_.Advance(seconds(2));
  Round();
  EXPECT_EQ(link_->stats().dropped_sequences, 1u);
  EXPECT_EQ(link_->scheduler(), 0u);
  Round();
  EXPECT_FALSE(engine_.HasWork());
  EXPECT_TRUE(link_->idle());
}

TEST_F(SequenceLinkTest, WallClockDecidesNothing) {
  Greet();
  Arrive(StartOf(1, 100));
  Round();
  clock_.JumpWallClock(1e6);
  Round();
  EXPECT_EQ(link_->stats().dropped_sequences, 0u);
}

TEST_F(SequenceLinkTest, StatusAndHelloOnTime) {
  Greet();
  hellos_ = 0;
  statuses_.clear();
  for (int i = 0; i < 100; ++i) {
    clock_.Advance(milliseconds(100));
    Greet();
  }
  EXPECT_EQ(hellos_, 10);
  EXPECT_GE(statuses_.size(), 10u);
  EXPECT_EQ(statuses_.back().scheduler, kScheduler);
  EXPECT_EQ(statuses_.back().key_bits, (std::vector<uint8_t>{16, 16}));
}

TEST_F(SequenceLinkTest, DrainRefusesNewAndEndsOld) {
  Greet();
  Arrive(StartOf(1, 3));
  Round();
  link_->Drain();
  Arrive(StartOf(2, 3));
  Take();
  Round();
  auto outputs = Take();
  ASSERT_EQ(outputs.size(), 2u);
  EXPECT_EQ(outputs[1].name, (SequenceName{2, 0}));
  EXPECT_EQ(outputs[1].finish, FinishReason::kMoved);
  EXPECT_TRUE(statuses_.back().draining);
  Round();
  EXPECT_FALSE(link_->idle());
  Arrive(AckSequence{{1, 0}, 3, true});
  Arrive(AckSequence{{2, 0}, 0, true});
  Round();
  EXPECT_TRUE(link_->idle());
}

TEST_F(SequenceLinkTest, WhatStillRunsIsHandedOverWithItsTokens) {
  Greet();
  Arrive(StartOf(1, 100));
  Arrive(StartOf(2, 1));
  Round();
  Round();
  link_->Drain();
  Take();
  link_->HandOver();
  Round();
  const auto outputs = Take();
  ASSERT_EQ(outputs.size(), 1u) << "what had ended by itself keeps its end";
  EXPECT_EQ(outputs[0].name, (SequenceName{1, 0}));
  EXPECT_EQ(outputs[0].finish, FinishReason::kMoved);
  EXPECT_EQ(outputs[0].first_index + outputs[0].tokens.size(), 2u);
  EXPECT_FALSE(engine_.HasWork()) << "its pages are free";
  Arrive(AckSequence{{1, 0}, 2, true});
  Arrive(AckSequence{{2, 0}, 1, true});
  Round();
  EXPECT_TRUE(link_->idle());
}

TEST_F(SequenceLinkTest, GarbageIsCountedAndSkipped) {
  Greet();
  channel_.arriving.push_back("garbage");
  Arrive(StartOf(1, 5));
  Round();
  EXPECT_EQ(link_->stats().refused_frames, 1u);
  EXPECT_EQ(engine_.starts, 1);
}

// A scheduler behind a link that loses and doubles frames both ways still gets every token once, in order, and every end.
TEST_F(SequenceLinkTest, EverythingArrivesOverALossyLink) {
  Greet();
  constexpr int kSequences = 20, kTokens = 30;
  struct Seen {
    uint32_t next = 0;
    bool finished = false;
  };
  std::map<uint64_t, Seen> seen;
  for (uint64_t id = 1; id <= kSequences; ++id) seen[id];
  uint64_t counter = 0;
  const auto lost = [&] { return Philox(11, 3, ++counter)[0] % 3 == 0; };
  const auto arrive = [&](const auto& command) {
    for (int copies = lost() ? 0 : 1 + lost(); copies > 0; --copies) Arrive(command);
  };
  int rounds = 0;
  bool all = false;
  for (; rounds < 3000 && !(all && link_->idle()); ++rounds) {
    if (rounds % 10 == 0) Arrive(SchedulerHello{kScheduler});
    all = true;
    for (auto& [id, s] : seen) {
      if (s.finished) {
        arrive(AckSequence{{id, 0}, s.next, true});
        continue;
      }
      all = false;
      if (s.next == 0) arrive(StartOf(id, kTokens));
      if (rounds % 3 == 0) arrive(AckSequence{{id, 0}, s.next, false});
    }
    clock_.Advance(milliseconds(300));
    Round();
    for (const SequenceOutput& output : Take()) {
      if (lost()) continue;
      Seen& s = seen[output.name.id];
      if (s.finished || output.first_index > s.next) continue;  // a gap waits for the resend
      for (uint32_t i = s.next - output.first_index; i < output.tokens.size(); ++i) {
        ASSERT_EQ(output.tokens[i].token, static_cast<int32_t>(output.name.id * 1000 + s.next));
        ++s.next;
      }
      s.finished = output.finish != FinishReason::kNone && output.first_index + output.tokens.size() == s.next;
    }
  }
  EXPECT_TRUE(link_->idle()) << rounds;
  for (const auto& [id, s] : seen) {
    EXPECT_TRUE(s.finished) << id;
    EXPECT_EQ(s.next, static_cast<uint32_t>(kTokens)) << id;
  }
  EXPECT_EQ(engine_.starts, kSequences);
}

TEST_F(SequenceLinkTest, LongBacklogIsSplitIntoFrames) {
  Greet();
  Arrive(StartOf(1, 250'000));
  link_->TakeCommands();
  channel_.connected = false;
  for (int i = 0; i < 249'999; ++i) link_->Publish(engine_.Turn().outputs);
  channel_.connected = true;
  clock_.Advance(milliseconds(20));
  frames_ = 0;
  Round();
  const auto outputs = Take();
  EXPECT_EQ(frames_, 3);
  uint32_t next = 0;
  for (const SequenceOutput& output : outputs) {
    EXPECT_EQ(output.first_index, next);
    next += static_cast<uint32_t>(output.tokens.size());
  }
  EXPECT_EQ(next, 250'000u);
  EXPECT_EQ(outputs.back().finish, FinishReason::kLength);
  EXPECT_EQ(outputs.front().finish, FinishReason::kNone);
}

}  // namespace
}  // namespace stria
