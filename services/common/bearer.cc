#include "services/common/bearer.h"

#include <fstream>
#include <iterator>
#include <utility>

#include <openssl/crypto.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace stria {
namespace {

Sha256Digest DigestOf(std::string_view secret) { return Sha256().Update(secret.data(), secret.size()).Finish(); }

}  // namespace

absl::Status BearerSecrets::Add(std::string_view secret, std::string owner) {
  if (secret.size() < kMinBytes) {
    return absl::InvalidArgumentError(absl::StrCat("the ", noun_, " has ", secret.size(), " bytes; at least ", kMinBytes, " are needed"));
  }
  Entry entry{DigestOf(secret), std::move(owner)};
  for (const Entry& other : entries_) {
    if (other.digest == entry.digest) return absl::InvalidArgumentError(absl::StrCat("the ", noun_, " is ", other.owner, "'s already"));
  }
  entries_.push_back(std::move(entry));
  return absl::OkStatus();
}

absl::StatusOr<std::string> BearerSecrets::OwnerOf(std::string_view authorization) const {
  constexpr absl::string_view kScheme = "Bearer ";
  if (!absl::StartsWithIgnoreCase(absl::string_view(authorization.data(), authorization.size()), kScheme)) {
    return absl::UnauthenticatedError(absl::StrCat("the ", noun_, " is missing: send the header Authorization: Bearer SECRET"));
  }
  const Sha256Digest digest = DigestOf(authorization.substr(kScheme.size()));
  const Entry* found = nullptr;
  for (const Entry& entry : entries_) {  // all of them, so that the time does not tell which one was close
    if (CRYPTO_memcmp(entry.digest.data(), digest.data(), digest.size()) == 0) found = &entry;
  }
  if (found == nullptr) return absl::UnauthenticatedError(absl::StrCat("the ", noun_, " is not a known one"));
  return found->owner;
}

absl::Status ForEachSecretLine(std::string_view text, std::string_view noun,
                               absl::FunctionRef<absl::Status(const std::vector<std::string>& words)> add) {
  int number = 0;
  for (const auto line : absl::StrSplit(absl::string_view(text.data(), text.size()), absl::ByAnyChar("\n;"))) {
    ++number;
    const std::vector<std::string> words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty() || words[0][0] == '#') continue;
    if (const absl::Status status = add(words); !status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat(absl::string_view(noun.data(), noun.size()), "s, line ", number, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSecretsFile(const std::string& path, std::string_view noun) {
  std::ifstream file(path);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file.good()) return absl::NotFoundError(absl::StrCat("cannot read the ", absl::string_view(noun.data(), noun.size()), "s in ", path));
  return text;
}

}  // namespace stria
