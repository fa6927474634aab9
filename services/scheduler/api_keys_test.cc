#include "services/scheduler/api_keys.h"

#include <cstdlib>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/match.h"

namespace stria {
namespace {

constexpr char kKeys[] = "# two tenants\n\nada  sk-0123456789abcdef  2.5\nbob sk-fedcba9876543210;ada sk-another-of-hers\r\n";

TEST(ApiKeys, KnowsItsKeysAndNoOther) {
  const absl::StatusOr<ApiKeys> keys = ApiKeys::Parse(kKeys);
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(*keys->TenantOf("Bearer sk-0123456789abcdef"), "ada");
  EXPECT_EQ(*keys->TenantOf("bearer sk-fedcba9876543210"), "bob");
  EXPECT_EQ(*keys->TenantOf("Bearer sk-another-of-hers"), "ada");
  EXPECT_EQ(keys->shares().at("bob"), 1);
  for (const char* wrong : {"", "Bearer", "Bearer ", "Bearer sk-0123456789abcdeF", "Bearer sk-0123456789abcdef ", "Basic sk-0123456789abcdef",
                            "sk-0123456789abcdef", "Bearer sk-0123456789abcde", "Bearer sk-0123456789abcdeff"}) {
    const auto tenant = keys->TenantOf(wrong);
    ASSERT_FALSE(tenant.ok()) << wrong;
    EXPECT_EQ(tenant.status().code(), absl::StatusCode::kUnauthenticated);
    EXPECT_FALSE(absl::StrContains(tenant.status().message(), "0123456789")) << "a near miss is not repeated";
  }
}

TEST(ApiKeys, WithoutKeysEverybodyMayCall) {
  EXPECT_EQ(*ApiKeys().TenantOf(""), "");
  EXPECT_EQ(*ApiKeys().TenantOf("Bearer whatever"), "");
}

TEST(ApiKeys, ErrorsNameTheLineAndNeverTheKey) {
  for (const char* text : {"sk-secretsecretsecret", "ada sk-secretsecretsecret 0", "ada 2 sk-secretsecretsecret", "ada sk-secretsecretsecret nan",
                           "ada sk-secretsecretsecret 1 2", "a sk-secretsecretsecret\nb sk-secretsecretsecret", "ada sk-short"}) {
    const auto keys = ApiKeys::Parse(text);
    ASSERT_FALSE(keys.ok()) << text;
    EXPECT_TRUE(absl::StrContains(keys.status().message(), "line ")) << keys.status();
    EXPECT_FALSE(absl::StrContains(keys.status().message(), "secret")) << keys.status();
    EXPECT_FALSE(absl::StrContains(keys.status().message(), "short")) << keys.status();
  }
}

TEST(ApiKeys, FilesThatHoldNoneAreRefused) {
  const std::string path = std::string(std::getenv("TEST_TMPDIR")) + "/keys";
  EXPECT_EQ(ApiKeys::Load(path, "STRIA_NO_SUCH_KEYS").status().code(), absl::StatusCode::kNotFound);
  std::ofstream(path) << "# none yet\n";
  EXPECT_EQ(ApiKeys::Load(path, "STRIA_NO_SUCH_KEYS").status().code(), absl::StatusCode::kInvalidArgument);
  std::ofstream(path) << kKeys;
  EXPECT_TRUE(ApiKeys::Load(path, "STRIA_NO_SUCH_KEYS").ok());
}

}  // namespace
}  // namespace stria
