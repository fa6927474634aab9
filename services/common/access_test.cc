#include "services/common/access.h"

#include <cstdlib>

#include "gtest/gtest.h"

namespace stria {
namespace {

constexpr char kAda[] = "operator ada 0123456789abcdef";

TEST(TokenTable, KnowsItsTokensAndNoOthers) {
  const auto table = TokenTable::Parse("# who may do what\n\noperator ada 0123456789abcdef\r\n viewer\tbob  fedcba9876543210 ; viewer eve "
                                       "eeeeeeeeeeeeeeee");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->Identify("Bearer 0123456789abcdef")->name, "ada");
  EXPECT_EQ(table->Identify("Bearer 0123456789abcdef")->role, Role::kOperator);
  EXPECT_EQ(table->Identify("Bearer fedcba9876543210")->name, "bob");
  EXPECT_EQ(table->Identify("Bearer fedcba9876543210")->role, Role::kViewer);
  EXPECT_EQ(table->Identify("Bearer eeeeeeeeeeeeeeee")->name, "eve");
  for (const char* header : {"", "Bearer", "Bearer ", "Bearer 0123456789abcde", "Bearer 0123456789abcdef0", "Bearer 0123456789abcdeF",
                             "0123456789abcdef", "Basic 0123456789abcdef", "Bearer  0123456789abcdef"}) {
    EXPECT_EQ(table->Identify(header).status().code(), absl::StatusCode::kUnauthenticated) << header;
  }
}

TEST(TokenTable, SaysWhatIsWrongButNotTheToken) {
  for (const char* text : {"operator ada", "operator 0123456789abcdef", "root ada 0123456789abcdef", "0123456789abcdef ada operator",
                           "viewer ada short", "viewer a 0123456789abcdef\nviewer b 0123456789abcdef", "viewer a b 0123456789abcdef"}) {
    const auto table = TokenTable::Parse(text);
    EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(std::string(table.status().message()).find("0123456789abcdef"), std::string::npos) << table.status();
    EXPECT_NE(std::string(table.status().message()).find("line "), std::string::npos);
  }
  EXPECT_TRUE(TokenTable::Parse("")->empty());
  EXPECT_FALSE(TokenTable::Parse(kAda)->empty());
}

TEST(TokenTable, ComesFromAFileOrAVariable) {
  constexpr char kVariable[] = "STRIA_ACCESS_TEST_TOKENS";
  EXPECT_TRUE(TokenTable::Load("", kVariable)->empty()) << "neither is given";
  EXPECT_EQ(TokenTable::Load("/no/such/file", kVariable).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(TokenTable::Load("/dev/null", kVariable).status().message(), "/dev/null holds no token");
  setenv(kVariable, kAda, 1);
  EXPECT_EQ(TokenTable::Load("", kVariable)->Identify("Bearer 0123456789abcdef")->name, "ada");
  setenv(kVariable, "# none yet", 1);
  EXPECT_EQ(TokenTable::Load("", kVariable).status().message(), "STRIA_ACCESS_TEST_TOKENS holds no token");
  unsetenv(kVariable);
}

TEST(TokenGuard, LeavesProbesAndMetricsOpenAndNothingElse) {
  const auto tokens = TokenTable::Parse("operator ada 0123456789abcdef; viewer bob fedcba9876543210");
  ASSERT_TRUE(tokens.ok());
  const HttpGuard guard = TokenGuard(*tokens, {"/plan"});
  const auto code = [&](std::string method, std::string path, std::string authorization) {
    HttpRequest request;
    request.method = std::move(method);
    request.path = std::move(path);
    request.authorization = std::move(authorization);
    return guard(request).code();
  };
  for (const char* path : {"/health", "/ready", "/live", "/metrics"}) EXPECT_EQ(code("GET", path, ""), absl::StatusCode::kOk) << path;
  for (const char* path : {"/", "/config", "/metrics/", "//metrics", "/Health", "/debug/sequences", "/nowhere"}) {
    EXPECT_EQ(code("GET", path, ""), absl::StatusCode::kUnauthenticated) << path;
    EXPECT_EQ(code("GET", path, "Bearer fedcba9876543210"), absl::StatusCode::kOk) << path;
    EXPECT_EQ(code("PUT", path, "Bearer fedcba9876543210"), absl::StatusCode::kPermissionDenied) << path;
    EXPECT_EQ(code("PUT", path, "Bearer 0123456789abcdef"), absl::StatusCode::kOk) << path;
  }
  EXPECT_EQ(code("POST", "/plan", "Bearer fedcba9876543210"), absl::StatusCode::kOk) << "reads, though its method writes";
  EXPECT_EQ(code("POST", "/plan", ""), absl::StatusCode::kUnauthenticated);
  const TokenTable none;
  HttpRequest change;
  change.method = "PUT";
  change.path = "/config";
  EXPECT_TRUE(TokenGuard(none)(change).ok());
}

TEST(CheckHttpBind, OffLoopbackNeedsSecretsOrInsecure) {
  for (const char* address : {"127.0.0.1", "127.1.2.3", "::1"}) EXPECT_TRUE(CheckHttpBind(address, false, false, "--x").ok()) << address;
  for (const char* address : {"0.0.0.0", "::", "10.1.2.3"}) {
    EXPECT_EQ(CheckHttpBind(address, false, false, "--x").code(), absl::StatusCode::kPermissionDenied) << address;
    EXPECT_TRUE(CheckHttpBind(address, true, false, "--x").ok());
    EXPECT_TRUE(CheckHttpBind(address, false, true, "--x").ok());
  }
  EXPECT_EQ(CheckHttpBind("0.0.0.0", false, false, "--tokens-file").message(), "--bind 0.0.0.0 is off loopback: needs --tokens-file, or --insecure");
  EXPECT_EQ(CheckHttpBind("localhost", true, true, "--x").code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stria
