#include "services/common/access.h"

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
  EXPECT_EQ(TokenTable::ReadFile("/no/such/file").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(TokenTable::ReadFile("/dev/null").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace stria
