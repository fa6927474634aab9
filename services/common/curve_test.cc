#include "services/common/curve.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <zmq.h>

#include "absl/strings/str_cat.h"
#include "services/common/bus.h"
#include "services/common/curve_flags.h"

namespace stria {
namespace {

using Type = BusSocket::Type;

// Tries until it is true; the limit only ends a test that has failed already.
bool Eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 20000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Hears a socket's handshakes fail, which its owner never does.
class HandshakeMonitor {
 public:
  HandshakeMonitor(BusContext& context, const BusSocket& socket, const std::string& name) {
    const std::string endpoint = "inproc://" + name;
    const int events = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL | ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL | ZMQ_EVENT_HANDSHAKE_FAILED_AUTH |
                       ZMQ_EVENT_DISCONNECTED | ZMQ_EVENT_CLOSED;
    EXPECT_EQ(zmq_socket_monitor(socket.handle(), endpoint.c_str(), events), 0);
    pair_ = zmq_socket(context.handle(), ZMQ_PAIR);
    EXPECT_EQ(zmq_connect(pair_, endpoint.c_str()), 0);
  }
  ~HandshakeMonitor() { zmq_close(pair_); }

  bool Failed() {
    char event[64];
    return zmq_recv(pair_, event, sizeof event, ZMQ_DONTWAIT) >= 0;
  }

 private:
  void* pair_;
};

class CurveBus : public testing::Test {
 protected:
  std::unique_ptr<BusSocket> Bind(BusContext& context, Type type, const std::string& endpoint = "tcp://127.0.0.1:*") {
    BusOptions options;
    options.security.secret_key = server_.secret_key;
    auto socket = BusSocket::Bind(context, type, endpoint, options);
    EXPECT_TRUE(socket.ok()) << socket.status();
    return *std::move(socket);
  }

  std::unique_ptr<BusSocket> Dial(BusContext& context, Type type, const BusSocket& server, const CurvePair& pair, const std::string& id,
                                  const std::string& server_key) {
    BusOptions options;
    options.routing_id = type == Type::kDealer ? id : "";
    options.security.secret_key = pair.secret_key;
    options.security.server_key = server_key;
    auto socket = BusSocket::Connect(context, type, server.endpoint(), options);
    EXPECT_TRUE(socket.ok()) << socket.status();
    return *std::move(socket);
  }

  PublicKeys Allowed() const { return *PublicKeys::Parse(absl::StrCat("worker ", worker_.public_key)); }

  const CurvePair server_ = NewCurvePair(), worker_ = NewCurvePair(), stranger_ = NewCurvePair();
};

// The strangers come first and never stop trying.
TEST_F(CurveBus, RouterServesAllowedPeersAndNobodyElse) {
  BusContext context(Allowed()), peers;
  const auto router = Bind(context, Type::kRouter);
  const auto unknown = Dial(peers, Type::kDealer, *router, stranger_, "unknown", server_.public_key);
  const auto keyless = Dial(peers, Type::kDealer, *router, CurvePair(), "keyless", "");
  const auto misled = Dial(peers, Type::kDealer, *router, worker_, "misled", stranger_.public_key);  // another server's key
  HandshakeMonitor keyless_monitor(peers, *keyless, "keyless"), misled_monitor(peers, *misled, "misled");
  const auto shut_out = [&] { return !unknown->Send("u") && !keyless->Send("k") && !misled->Send("m"); };
  ASSERT_TRUE(Eventually([&] { return shut_out() && context.refused_peers() >= 1; }));
  ASSERT_TRUE(Eventually([&] { return keyless_monitor.Failed(); }));
  ASSERT_TRUE(Eventually([&] { return misled_monitor.Failed(); }));

  const auto allowed = Dial(peers, Type::kDealer, *router, worker_, "allowed", server_.public_key);
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(Eventually([&] { return allowed->Send(absl::StrCat(i)); }));
    std::optional<PeerFrame> got;
    ASSERT_TRUE(Eventually([&] { return (got = router->ReceiveFrom()).has_value(); }));
    ASSERT_EQ(got->peer, "allowed");
    ASSERT_EQ(got->frame, absl::StrCat(i));
    ASSERT_EQ(router->SendTo("allowed", got->frame), SendResult::kSent);
    std::optional<std::string> back;
    ASSERT_TRUE(Eventually([&] { return (back = allowed->Receive()).has_value(); }));
    ASSERT_EQ(*back, absl::StrCat(i));
    ASSERT_TRUE(shut_out());
  }
  for (const char* name : {"unknown", "keyless", "misled"}) EXPECT_EQ(router->SendTo(name, "secret"), SendResult::kNoPeer) << name;
  for (BusSocket* socket : {unknown.get(), keyless.get(), misled.get()}) EXPECT_FALSE(socket->Receive());
}

TEST_F(CurveBus, SubscriberHearsAllowedPublishersOnly) {
  BusContext context(Allowed()), peers;
  const auto sub = Bind(context, Type::kSub);
  const auto unknown = Dial(peers, Type::kPub, *sub, stranger_, "", server_.public_key);
  const auto keyless = Dial(peers, Type::kPub, *sub, CurvePair(), "", "");
  HandshakeMonitor monitor(peers, *keyless, "keyless-pub");
  ASSERT_TRUE(Eventually([&] { return monitor.Failed() && context.refused_peers() >= 1; }));
  const auto allowed = Dial(peers, Type::kPub, *sub, worker_, "", server_.public_key);
  for (int heard = 0; heard < 100; ++heard) {
    std::optional<std::string> got;
    ASSERT_TRUE(Eventually([&] {
      unknown->Send("forged");
      keyless->Send("forged");
      allowed->Send("reading");
      return (got = sub->Receive()).has_value();
    }));
    ASSERT_EQ(*got, "reading");
  }
}

// A worker whose key comes onto the list later (the server restarts with it) gets in without a restart of its own. Some seconds: a refused
// peer tries again when its handshake has timed out.
TEST_F(CurveBus, RefusedPeersTryAgain) {
  BusContext peers;
  std::unique_ptr<BusSocket> dealer;
  std::string endpoint;
  {
    BusContext context(Allowed());
    const auto router = Bind(context, Type::kRouter);
    endpoint = router->endpoint();
    dealer = Dial(peers, Type::kDealer, *router, stranger_, "late", server_.public_key);
    ASSERT_TRUE(Eventually([&] { return context.refused_peers() >= 2; }));
  }
  BusContext context(*PublicKeys::Parse(absl::StrCat("late ", stranger_.public_key)));
  const auto router = Bind(context, Type::kRouter, endpoint);
  EXPECT_TRUE(Eventually([&] { return dealer->Send("let me in"); }));
}

TEST_F(CurveBus, OffLoopbackWithKeysOnly) {
  BusContext context(Allowed());
  EXPECT_NE(Bind(context, Type::kRouter, "tcp://0.0.0.0:*"), nullptr);
  EXPECT_TRUE(absl::IsPermissionDenied(BusSocket::Connect(context, Type::kDealer, "tcp://scheduler:5555").status()));
  EXPECT_TRUE(absl::IsPermissionDenied(BusSocket::Bind(context, Type::kSub, "tcp://0.0.0.0:*").status()));
  EXPECT_DEATH(
      {
        BusContext open;
        Bind(open, Type::kRouter);
      },
      "gated");
}

TEST(PublicKeys, ParsesAndNamesTheLine) {
  const CurvePair a = NewCurvePair(), b = NewCurvePair();
  const auto keys = PublicKeys::Parse(absl::StrCat("# workers\n\nworker ", a.public_key, "\n worker ", b.public_key, ";other ", NewCurvePair().public_key));
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(*keys->Of("worker"), b.public_key);  // the newest
  EXPECT_TRUE(absl::IsNotFound(keys->Of("nobody").status()));
  EXPECT_EQ(*PublicKeyOf(a.secret_key), a.public_key);
  const std::string bad[] = {"worker", "worker short", absl::StrCat("w ", a.public_key, " x"), absl::StrCat("w ", a.public_key, "\nv ", a.public_key),
                             absl::StrCat("w ", a.public_key.substr(1), "\"")};
  for (const std::string& text : bad) EXPECT_TRUE(absl::IsInvalidArgument(PublicKeys::Parse(text).status())) << text;
  EXPECT_TRUE(absl::IsInvalidArgument(PublicKeyOf("short").status()));
}

TEST(CurveFlags, NeedBothHalvesAndTellNoSecret) {
  const std::string folder = testing::TempDir();
  const CurvePair pair = NewCurvePair(), peer = NewCurvePair();
  const auto file = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder + "/" + name) << text;
    return folder + "/" + name;
  };
  CurveFlags flags;
  const auto none = LoadCurveClient(flags);
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->secret_key.empty());
  flags.key_file = file("own.key", pair.secret_key + "\n");
  EXPECT_TRUE(absl::IsInvalidArgument(LoadCurveClient(flags).status()));
  flags.peers_file = file("servers.pub", absl::StrCat("scheduler ", peer.public_key, "\n"));
  const auto both = LoadCurveClient(flags);
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->Client("scheduler", false)->server_key, peer.public_key);
  EXPECT_TRUE(absl::IsNotFound(both->Client("controller", false).status()));
  flags.key_file = file("cut.key", pair.secret_key.substr(1));
  const auto cut = LoadCurveClient(flags);
  EXPECT_TRUE(absl::IsInvalidArgument(cut.status()));
  EXPECT_EQ(cut.status().message().find(pair.secret_key.substr(1)), std::string::npos);
  flags.key_file = folder + "/absent.key";
  EXPECT_TRUE(absl::IsNotFound(LoadCurveClient(flags).status()));

  setenv(kCurveKeyVariable, pair.secret_key.c_str(), 1);
  setenv(kCurveWorkersVariable, absl::StrCat("a ", peer.public_key, "; b ", NewCurvePair().public_key).c_str(), 1);
  const auto environment = LoadCurveServer({});
  unsetenv(kCurveKeyVariable);
  unsetenv(kCurveWorkersVariable);
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->secret_key, pair.secret_key);
  EXPECT_FALSE(environment->peers->empty());
}

}  // namespace
}  // namespace stria
