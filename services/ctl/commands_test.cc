#include "services/ctl/commands.h"

#include "gtest/gtest.h"

namespace stria {
namespace {

TEST(ParseValue, NumbersFractionsBooleansAndNames) {
  EXPECT_EQ(ParseValue("0.03"), 0.03);
  EXPECT_EQ(ParseValue("1/64"), 1.0 / 64);
  EXPECT_TRUE(ParseValue("4096").is_number_integer());
  EXPECT_EQ(ParseValue("true"), true);
  // No numbers: the controller will say what it wants instead.
  for (const char* text : {"", "int4", "1/0", "nan", "inf", "1/", "/2", "0.1x", "1/2/3"}) EXPECT_EQ(ParseValue(text), text);
}

TEST(EventParser, CutsEventsOutOfPiecesOfAnySize) {
  const std::string stream = ": hello\n\nevent: revision\nid: 3\ndata: {\"a\":1}\n\n: still here\n\nevent: tiers\nid: 3\ndata: {}\n\n";
  for (size_t size = 1; size <= stream.size(); ++size) {
    EventParser parser;
    std::string seen;
    for (size_t at = 0; at < stream.size(); at += size) {
      EXPECT_TRUE(parser.Feed(std::string_view(stream).substr(at, size), [&](const std::string& name, const std::string& data) {
        seen += name + data + ";";
        return true;
      }));
    }
    EXPECT_EQ(seen, "revision{\"a\":1};tiers{};") << size;
  }
  EventParser parser;
  EXPECT_FALSE(parser.Feed(stream, [](const std::string&, const std::string&) { return false; }));
}

}  // namespace
}  // namespace stria
