#include "services/controller/cache_queries.h"

#include <string>
#include <utility>
#include <vector>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "gtest/gtest.h"
#include "proto/codec.h"
#include "services/controller/state_store.h"

namespace stria {
namespace {

using boost::asio::awaitable;

class CacheQueriesTest : public testing::Test {
 protected:
  CacheQueriesTest() {
    auto opened = OpenStateStore(testing::TempDir() + "/cache_queries.db", 0);
    EXPECT_TRUE(opened.ok()) << opened.status();
    loop_ = std::make_unique<ControlLoop>(*std::move(opened), events_, SystemClock(), [this](std::string_view, std::string_view frame) {
      const auto message = DecodeFromController(frame);
      if (const auto* query = std::get_if<CacheQuery>(&*message)) asked_.push_back(*query);
      return true;
    });
    queries_ = std::make_unique<CacheQueries>(io_, *loop_);
    TierHello hello{.worker = "w", .incarnation = 1, .model = "m", .model_name = "n", .layers = 2, .http = ""};
    loop_->OnTiers("peer", Encode(hello));
  }

  // The answer lands in `answers_[i]`, i counting from 0 in the order of the calls.
  void Ask(std::string worker, uint64_t sequence) {
    const size_t i = answers_.size();
    answers_.emplace_back(absl::UnknownError("waits"));
    boost::asio::co_spawn(io_, Take(std::move(worker), sequence, i), boost::asio::detached);
    io_.restart();
    io_.poll();
  }
  awaitable<void> Take(std::string worker, uint64_t sequence, size_t i) {
    absl::StatusOr<CacheReport> report = co_await queries_->Ask(std::move(worker), sequence);
    answers_[i] = std::move(report);
  }
  void Answer(uint64_t number, uint64_t epoch) {
    CacheReport report;
    report.worker = "w";
    report.number = number;
    report.epoch = epoch;
    loop_->OnTiers("peer", Encode(report));
    io_.restart();
    io_.poll();
  }
  bool Waits(size_t i) const { return absl::IsUnknown(answers_[i].status()); }

  boost::asio::io_context io_;
  EventHub events_{io_};
  std::vector<CacheQuery> asked_;
  std::vector<absl::StatusOr<CacheReport>> answers_;
  std::unique_ptr<ControlLoop> loop_;
  std::unique_ptr<CacheQueries> queries_;
};

TEST_F(CacheQueriesTest, EachGetsItsOwnAnswer) {
  Ask("w", 5);
  Ask("w", 6);
  ASSERT_EQ(asked_.size(), 2u);
  EXPECT_EQ(asked_[0].sequence, 5u);
  EXPECT_NE(asked_[0].number, asked_[1].number);
  EXPECT_TRUE(Waits(0) && Waits(1));
  Answer(asked_[1].number, 11);
  EXPECT_TRUE(Waits(0));
  ASSERT_TRUE(answers_[1].ok()) << answers_[1].status();
  EXPECT_EQ(answers_[1]->epoch, 11u);
  Answer(asked_[1].number, 12);  // once more: nobody waits for it
  Answer(99, 13);
  Answer(asked_[0].number, 14);
  ASSERT_TRUE(answers_[0].ok());
  EXPECT_EQ(answers_[0]->epoch, 14u);
}

TEST_F(CacheQueriesTest, UnknownWorkersAndCrowdsAreRefusedAtOnce) {
  Ask("nobody", 0);
  EXPECT_TRUE(absl::IsNotFound(answers_[0].status()));
  for (size_t i = 0; i < CacheQueries::kMaxWaiting; ++i) Ask("w", 1);
  EXPECT_TRUE(Waits(1) && Waits(CacheQueries::kMaxWaiting));
  Ask("w", 1);
  EXPECT_TRUE(absl::IsResourceExhausted(answers_.back().status()));
  Answer(asked_[0].number, 1);
  Ask("w", 1);
  EXPECT_TRUE(Waits(answers_.size() - 1)) << "there is room again";
}

TEST_F(CacheQueriesTest, ASilentWorkerIsGivenUp) {
  Ask("w", 1);
  io_.restart();
  io_.run();
  EXPECT_TRUE(absl::IsDeadlineExceeded(answers_[0].status())) << answers_[0].status();
  Answer(asked_[0].number, 1);  // too late
  EXPECT_TRUE(absl::IsDeadlineExceeded(answers_[0].status()));
}

}  // namespace
}  // namespace stria
