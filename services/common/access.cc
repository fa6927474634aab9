#include "services/common/access.h"

#include <fstream>
#include <iterator>
#include <utility>

#include <openssl/crypto.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace stria {
namespace {

Sha256Digest DigestOf(std::string_view token) { return Sha256().Update(token.data(), token.size()).Finish(); }

}  // namespace

absl::StatusOr<TokenTable> TokenTable::Parse(std::string_view text) {
  TokenTable table;
  int number = 0;
  for (const auto line : absl::StrSplit(absl::string_view(text.data(), text.size()), absl::ByAnyChar("\n;"))) {
    ++number;
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    const auto bad = [&](const std::string& why) {
      return absl::InvalidArgumentError(absl::StrCat("tokens, line ", number, ": ", why));
    };
    if (words.size() != 3) return bad(absl::StrCat(words.size(), " words; a line is ROLE NAME TOKEN"));
    Entry entry;
    if (words[0] == "operator") {
      entry.caller.role = Role::kOperator;
    } else if (words[0] != "viewer") {
      return bad("the role must be viewer or operator");  // not quoted: the token may stand in the wrong place
    }
    entry.caller.name = words[1];
    if (words[2].size() < kMinTokenBytes) {
      return bad(absl::StrCat("the token has ", words[2].size(), " bytes; at least ", kMinTokenBytes, " are needed"));
    }
    entry.digest = DigestOf(words[2]);
    for (const Entry& other : table.entries_) {
      if (other.digest == entry.digest) return bad(absl::StrCat("the token is ", other.caller.name, "'s already"));
    }
    table.entries_.push_back(std::move(entry));
  }
  return table;
}

absl::StatusOr<TokenTable> TokenTable::ReadFile(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good()) return absl::NotFoundError(absl::StrCat("cannot read the tokens in ", path));
  absl::StatusOr<TokenTable> table = Parse(text);
  if (!table.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(table.status().message())));
  if (table->empty()) return absl::InvalidArgumentError(absl::StrCat(path, " holds no token"));
  return table;
}

absl::StatusOr<Caller> TokenTable::Identify(std::string_view authorization) const {
  constexpr std::string_view kScheme = "Bearer ";
  if (!authorization.starts_with(kScheme)) {
    return absl::UnauthenticatedError("this needs a token: send the header Authorization: Bearer TOKEN");
  }
  const Sha256Digest digest = DigestOf(authorization.substr(kScheme.size()));
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {  // all of them, so that the time does not tell which one was close
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) found = &entry;
  }
  if (found == nullptr) return absl::UnauthenticatedError("the token is not a known one");
  return found->caller;
}

}  // namespace stria
