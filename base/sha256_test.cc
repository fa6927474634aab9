#include "base/sha256.h"

#include "gtest/gtest.h"

namespace stria {
namespace {

// The examples of FIPS 180-4 (NIST's Cryptographic Standards, SHA256.pdf) and its empty message.
TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(Hex(Sha256().Finish()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Hex(Sha256().Update("abc").Finish()),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(Hex(Sha256().Update("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq").Finish()),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(Hex(Sha256().Update(std::string(1'000'000, 'a')).Finish()),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesEqualTheWholeAndFinishBeginsAnew) {
  Sha256 sha;
  EXPECT_EQ(sha.Update("a").Update("bc").Finish(), Sha256().Update("abc").Finish());
  EXPECT_EQ(sha.Finish(), Sha256().Finish());
  EXPECT_EQ(sha.Update(uint64_t{0x4847464544434241}).Finish(), Sha256().Update("ABCDEFGH").Finish());
}

}  // namespace
}  // namespace stria
