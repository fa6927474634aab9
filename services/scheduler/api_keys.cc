#include "services/scheduler/api_keys.h"

#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stria {

absl::StatusOr<ApiKeys> ApiKeys::Parse(std::string_view text) {
  ApiKeys keys;
  STRIA_RETURN_IF_ERROR(ForEachSecretLine(text, kNoun, [&](const std::vector<std::string>& words) -> absl::Status {
    if (words.size() < 2 || words.size() > 3) {
      return absl::InvalidArgumentError(absl::StrCat(words.size(), " words; a line is NAME KEY [SHARE]"));
    }
    double share = 1;
    if (words.size() == 3 && (!absl::SimpleAtod(words[2], &share) || !(share > 0) || !std::isfinite(share))) {
      // Not quoted: the key may stand in the wrong place.
      return absl::InvalidArgumentError("the third word, the share, must be a positive number");
    }
    STRIA_RETURN_IF_ERROR(keys.secrets_.Add(words[1], words[0]));
    keys.shares_[words[0]] = share;
    return absl::OkStatus();
  }));
  return keys;
}

absl::StatusOr<ApiKeys> ApiKeys::Load(const std::string& path, const char* variable) { return LoadSecrets<ApiKeys>(path, variable, kNoun, &ApiKeys::Parse); }

absl::StatusOr<std::string> ApiKeys::TenantOf(std::string_view authorization) const {
  if (empty()) return std::string();
  return secrets_.OwnerOf(authorization);
}

}  // namespace stria
