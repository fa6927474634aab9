#include "services/scheduler/api_keys.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <utility>

#include <openssl/crypto.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stria {
namespace {

Sha256Digest DigestOf(std::string_view key) { return Sha256().Update(key.data(), key.size()).Finish(); }

}  // namespace

absl::StatusOr<ApiKeys> ApiKeys::Parse(std::string_view text) {
  ApiKeys keys;
  int number = 0;
  for (const auto line : absl::StrSplit(absl::string_view(text.data(), text.size()), absl::ByAnyChar("\n;"))) {
    ++number;
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    const auto bad = [&](const std::string& why) { return absl::InvalidArgumentError(absl::StrCat("API keys, line ", number, ": ", why)); };
    if (words.size() < 2 || words.size() > 3) return bad(absl::StrCat(words.size(), " words; a line is NAME KEY [SHARE]"));
    double share = 1;
    if (words.size() == 3 && (!absl::SimpleAtod(words[2], &share) || !(share > 0) || !std::isfinite(share))) {
      return bad("the third word, the share, must be a positive number");  // not quoted: the key may stand in the wrong place
    }
    if (words[1].size() < kMinKeyBytes) {
      return bad(absl::StrCat("the key has ", words[1].size(), " bytes; at least ", kMinKeyBytes, " are needed"));
    }
    Entry entry{DigestOf(words[1]), words[0]};
    for (const Entry& other : keys.entries_) {
      if (other.digest == entry.digest) return bad(absl::StrCat("the key is ", other.name, "'s already"));
    }
    keys.shares_[entry.name] = share;
    keys.entries_.push_back(std::move(entry));
  }
  return keys;
}

absl::StatusOr<ApiKeys> ApiKeys::ReadFile(const std::string& path) {
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good()) return absl::NotFoundError(absl::StrCat("cannot read the API keys in ", path));
  absl::StatusOr<ApiKeys> keys = Parse(text);
  if (!keys.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::string(keys.status().message())));
  if (keys->empty()) return absl::InvalidArgumentError(absl::StrCat(path, " holds no API key"));
  return keys;
}

absl::StatusOr<std::string> ApiKeys::TenantOf(std::string_view authorization) const {
  if (empty()) return std::string();
  constexpr std::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(absl::string_view(authorization.data(), authorization.size()), "bearer ")) {
    return absl::UnauthenticatedError("this server wants an API key: send the header Authorization: Bearer KEY");
  }
  const Sha256Digest digest = DigestOf(authorization.substr(kScheme.size()));
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {  // all of them, so that the time does not tell which one it was
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) found = &entry;
  }
  if (found == nullptr) return absl::UnauthenticatedError("the API key is not a known one");
  return found->name;
}

}  // namespace stria
