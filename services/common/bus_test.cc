#include "services/common/bus.h"

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <gtest/gtest.h>

#include "services/common/bus_listener.h"

namespace stria {
namespace {

using Type = BusSocket::Type;

std::unique_ptr<BusSocket> Bound(BusContext& context, Type type, const std::string& endpoint = "tcp://127.0.0.1:*",
                                 const BusOptions& options = {}) {
  auto socket = BusSocket::Bind(context, type, endpoint, options);
  EXPECT_TRUE(socket.ok()) << socket.status();
  return *std::move(socket);
}

std::unique_ptr<BusSocket> Connected(BusContext& context, Type type, const std::string& endpoint, const std::string& id = "") {
  BusOptions options;
  options.routing_id = id;
  auto socket = BusSocket::Connect(context, type, endpoint, options);
  EXPECT_TRUE(socket.ok()) << socket.status();
  return *std::move(socket);
}

// Tries until it is true; the limit only ends a test that has failed already.
bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 20000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

std::optional<PeerFrame> NextFrom(BusSocket& socket) {
  std::optional<PeerFrame> frame;
  Eventually([&] { return (frame = socket.ReceiveFrom()).has_value(); });
  return frame;
}

TEST(Bus, RouterAndDealerBothWays) {
  BusContext context;
  const auto router = Bound(context, Type::kRouter);
  const auto dealer = Connected(context, Type::kDealer, router->endpoint(), PeerId("worker", 7));
  ASSERT_TRUE(Eventually([&] { return dealer->Send("hello"); }));
  const auto got = NextFrom(*router);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->peer, "worker#7");
  EXPECT_EQ(got->frame, "hello");
  EXPECT_EQ(router->SendTo(got->peer, std::string(100000, 'x')), SendResult::kSent);
  const auto reply = NextFrom(*dealer);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->frame, std::string(100000, 'x'));
}

TEST(Bus, NothingIsSentWithoutAPeer) {
  BusContext context;
  const auto router = Bound(context, Type::kRouter);
  EXPECT_EQ(router->SendTo("nobody", "x"), SendResult::kNoPeer);
  const std::string endpoint = router->endpoint();
  const auto lonely = Connected(context, Type::kDealer, "tcp://127.0.0.1:1");
  EXPECT_FALSE(lonely->Send("x"));
  EXPECT_FALSE(lonely->Receive());
}

TEST(Bus, FullQueueRefusesAndKeepsWhatItTook) {
  BusContext context;
  BusOptions options;
  options.queued_messages = 10;
  const auto router = Bound(context, Type::kRouter, "tcp://127.0.0.1:*", options);
  auto dealer = BusSocket::Connect(context, Type::kDealer, router->endpoint(), options);
  ASSERT_TRUE(dealer.ok());
  ASSERT_TRUE(Eventually([&] { return (*dealer)->Send("0"); }));
  // The router does not read: queues and the kernel's buffers fill up, then Send refuses instead of blocking.
  const std::string body(100000, 'b');
  int sent = 1;
  while (sent < 100000 && (*dealer)->Send(std::to_string(sent) + ":" + body)) ++sent;
  ASSERT_LT(sent, 100000);
  for (int i = 0; i < sent; ++i) {
    const auto got = NextFrom(*router);
    ASSERT_TRUE(got) << i;
    EXPECT_EQ(std::stoi(got->frame), i);
  }
  EXPECT_FALSE(router->ReceiveFrom());
}

TEST(Bus, RouterRefusesForAPeerThatDoesNotRead) {
  BusContext context;
  BusOptions options;
  options.queued_messages = 10;
  const auto router = Bound(context, Type::kRouter, "tcp://127.0.0.1:*", options);
  const auto stalled = Connected(context, Type::kDealer, router->endpoint(), "stalled");
  const auto lively = Connected(context, Type::kDealer, router->endpoint(), "lively");
  for (BusSocket* socket : {stalled.get(), lively.get()}) {
    ASSERT_TRUE(Eventually([&] { return socket->Send("hi"); }));
    ASSERT_TRUE(NextFrom(*router));
  }
  const std::string body(100000, 'b');
  SendResult result = SendResult::kSent;
  for (int i = 0; i < 100000 && result == SendResult::kSent; ++i) result = router->SendTo("stalled", body);
  EXPECT_EQ(result, SendResult::kFull);
  EXPECT_EQ(router->SendTo("lively", "still served"), SendResult::kSent);
  const auto got = NextFrom(*lively);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->frame, "still served");
}

TEST(Bus, OversizedFramesAreRefusedBothWays) {
  BusContext context;
  BusOptions small;
  small.max_frame_bytes = 1000;
  const auto router = Bound(context, Type::kRouter, "tcp://127.0.0.1:*", small);
  const auto dealer = Connected(context, Type::kDealer, router->endpoint(), "big");
  ASSERT_TRUE(Eventually([&] { return dealer->Send("ok"); }));
  ASSERT_TRUE(NextFrom(*router));
  EXPECT_EQ(router->SendTo("big", std::string(1001, 'x')), SendResult::kTooLarge);
  // The peer that sends one loses its connection, not the router its memory; it connects again by itself.
  dealer->Send(std::string(1001, 'x'));
  std::optional<PeerFrame> got;
  ASSERT_TRUE(Eventually([&] {
    dealer->Send("again");
    return (got = router->ReceiveFrom()).has_value();
  }));
  EXPECT_EQ(got->frame, "again");
}

TEST(Bus, DealerFindsARouterThatComesLaterAndComesBack) {
  BusContext context;
  std::string endpoint;
  { endpoint = Bound(context, Type::kRouter)->endpoint(); }  // a free port
  const auto dealer = Connected(context, Type::kDealer, endpoint, "w#1");
  for (int life = 0; life < 2; ++life) {
    std::unique_ptr<BusSocket> router;
    ASSERT_TRUE(Eventually([&] {
      auto bound = BusSocket::Bind(context, Type::kRouter, endpoint);
      if (bound.ok()) router = *std::move(bound);
      return router != nullptr;
    }));
    std::optional<PeerFrame> got;
    const std::string text = "life " + std::to_string(life);
    ASSERT_TRUE(Eventually([&] {
      dealer->Send(text);
      return (got = router->ReceiveFrom()).has_value();
    }));
    EXPECT_EQ(got->frame, text);  // nothing stale from the life before
    EXPECT_EQ(got->peer, "w#1");
    EXPECT_EQ(router->SendTo("w#1", "yes"), SendResult::kSent);
    std::optional<std::string> reply;
    ASSERT_TRUE(Eventually([&] { return (reply = dealer->Receive()).has_value(); }));
    EXPECT_EQ(*reply, "yes");
  }
}

TEST(Bus, NewConnectionTakesOverItsName) {
  BusContext context;
  const auto router = Bound(context, Type::kRouter);
  auto first = Connected(context, Type::kDealer, router->endpoint(), "same");
  ASSERT_TRUE(Eventually([&] { return first->Send("1"); }));
  ASSERT_TRUE(NextFrom(*router));
  const auto second = Connected(context, Type::kDealer, router->endpoint(), "same");
  ASSERT_TRUE(Eventually([&] { return second->Send("2"); }));
  const auto got = NextFrom(*router);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->frame, "2");
  EXPECT_EQ(router->SendTo("same", "for the second"), SendResult::kSent);
  const auto reply = NextFrom(*second);
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->frame, "for the second");
}

TEST(Bus, SubscriberHearsPublishersThatJoinLate) {
  BusContext context;
  const auto sub = Bound(context, Type::kSub);
  for (int i = 0; i < 2; ++i) {
    const auto pub = Connected(context, Type::kPub, sub->endpoint());
    std::optional<std::string> got;
    const std::string text = "frame of " + std::to_string(i);
    ASSERT_TRUE(Eventually([&] {
      pub->Send(text);
      while ((got = sub->Receive()) && *got != text) {
      }
      return got.has_value();
    }));
  }
}

TEST(Bus, BindsOffLoopbackOnlyOnPurpose) {
  BusContext context;
  const auto open = BusSocket::Bind(context, Type::kRouter, "tcp://0.0.0.0:*");
  EXPECT_TRUE(absl::IsPermissionDenied(open.status())) << open.status();
  EXPECT_NE(open.status().message().find("0.0.0.0"), std::string::npos);
  EXPECT_TRUE(absl::IsPermissionDenied(BusSocket::Bind(context, Type::kSub, "tcp://*:5556").status()));
  BusOptions insecure;
  insecure.security.insecure = true;
  EXPECT_TRUE(BusSocket::Bind(context, Type::kRouter, "tcp://0.0.0.0:*", insecure).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(BusSocket::Bind(context, Type::kRouter, "localhost:1").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(BusSocket::Connect(context, Type::kDealer, "tcp://").status()));
  const auto taken = Bound(context, Type::kRouter);
  EXPECT_TRUE(absl::IsUnavailable(BusSocket::Bind(context, Type::kRouter, taken->endpoint()).status()));
}

// Everything on one io_context: the listener must not miss a frame, whatever the order of sends and receives.
TEST(BusListener, AnswersEveryFrame) {
  constexpr int kFrames = 20000;
  BusContext context;
  boost::asio::io_context io(1);
  std::unique_ptr<BusListener> listener;
  int answered = 0;
  listener = std::make_unique<BusListener>(io, Bound(context, Type::kRouter), [&](PeerFrame got) {
    EXPECT_EQ(listener->SendTo(got.peer, got.frame), SendResult::kSent);
    if (++answered == kFrames) io.stop();
  });
  std::thread peer([&context, endpoint = listener->socket().endpoint()] {
    const auto dealer = Connected(context, Type::kDealer, endpoint, "peer");
    int sent = 0, received = 0;
    ASSERT_TRUE(Eventually([&] { return dealer->Send("0"); }));
    ++sent;
    // Bursts of odd sizes, so that edges come at every state of the queue.
    while (received < kFrames) {
      for (int burst = 1 + sent % 37; burst > 0 && sent < kFrames && sent - received < 1000; --burst) {
        if (dealer->Send(std::to_string(sent))) ++sent;
      }
      while (const auto frame = dealer->Receive()) {
        ASSERT_EQ(*frame, std::to_string(received));
        ++received;
      }
      if (received < sent) WaitReadable({dealer.get()}, -1, std::chrono::seconds(20));
      ASSERT_TRUE(sent == received || dealer->readable()) << sent << " sent, " << received << " received";
    }
  });
  io.run_for(std::chrono::seconds(60));
  EXPECT_EQ(answered, kFrames);
  peer.join();
  listener.reset();
}

TEST(Bus, WaitReadableWakesForAFrame) {
  BusContext context;
  const auto router = Bound(context, Type::kRouter);
  const auto dealer = Connected(context, Type::kDealer, router->endpoint());
  ASSERT_TRUE(Eventually([&] { return dealer->Send("x"); }));
  WaitReadable({router.get()}, -1, std::chrono::hours(1));
  EXPECT_TRUE(router->ReceiveFrom());
}

}  // namespace
}  // namespace stria
