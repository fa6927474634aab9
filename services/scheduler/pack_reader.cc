#include "services/scheduler/pack_reader.h"

#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "base/status_macros.h"
#include "services/scheduler/kv_reader.h"

namespace stria {
namespace {

constexpr char kFormat[] = "stria-pack";
constexpr int kVersion = 1;
constexpr char kTensors[] = "pack.safetensors";

std::string Text(const absl::Status& status) { return std::string(status.message().data(), status.message().size()); }

// A field that must be there: `path` of names from the top. Null if it is not.
Json At(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* name : path) {
    const auto it = at->is_object() ? at->find(name) : at->end();
    if (it == at->end()) return Json();
    at = &*it;
  }
  return *at;
}

absl::Status CheckTensors(const std::string& folder, const Json& tensors) {
  // The name is fixed: a pack never makes anyone read another file.
  if (At(tensors, {"file"}) != kTensors) return absl::InvalidArgumentError(absl::StrCat("tensors.file is ", Quote(At(tensors, {"file"})), ", not \"", kTensors, "\""));
  std::ifstream file(folder + "/" + kTensors, std::ios::binary);
  if (!file.good()) return absl::NotFoundError(absl::StrCat(kTensors, " is missing"));
  Sha256 sha;
  uint64_t bytes = 0;
  std::string piece(size_t{1} << 20, '\0');
  while (file.read(piece.data(), static_cast<std::streamsize>(piece.size())), file.gcount() > 0) {
    sha.Update(piece.data(), static_cast<size_t>(file.gcount()));
    bytes += static_cast<uint64_t>(file.gcount());
  }
  if (At(tensors, {"bytes"}) != bytes) return absl::InvalidArgumentError(absl::StrCat(kTensors, " has ", bytes, " bytes, pack.json says ", Quote(At(tensors, {"bytes"}))));
  if (At(tensors, {"sha256"}) != Hex(sha.Finish())) return absl::InvalidArgumentError(absl::StrCat("the checksum of ", kTensors, " is wrong"));
  return absl::OkStatus();
}

absl::StatusOr<PackOffer::Plan> ReadPlan(const Json& list, size_t index) {
  if (!list.is_array()) return absl::InvalidArgumentError(absl::StrCat("plan ", index, " is not a list of actions"));
  PackOffer::Plan plan;
  for (const Json& value : list) {
    const std::optional<LayerAction> action = ReadAction(value);
    if (!action) return absl::InvalidArgumentError(absl::StrCat("plan ", index, " has ", Quote(value), " for layer ", plan.layers.size()));
    plan.layers.push_back(*action);
  }
  return plan;
}

absl::StatusOr<PackOffer> Read(const std::string& folder) {
  std::ifstream file(folder + "/pack.json", std::ios::binary);
  if (!file.good()) return absl::NotFoundError("there is no pack.json");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  Json json;
  if (const std::optional<ApiError> error = ParseObject(text, &json)) return absl::InvalidArgumentError(absl::StrCat("pack.json: ", error->message));
  if (At(json, {"format"}) != kFormat || At(json, {"version"}) != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat("format ", Quote(At(json, {"format"})), " version ", Quote(At(json, {"version"})), ", not \"", kFormat,
                                                   "\" version ", kVersion));
  }
  PackOffer offer;
  const Json model = At(json, {"model", "fingerprint"}), layers = At(json, {"model", "layers"}), lossless = At(json, {"kaizen", "lossless_ratio"});
  if (!model.is_string() || model.get<std::string>().empty()) return absl::InvalidArgumentError("model.fingerprint is missing");
  offer.model = model.get<std::string>();
  if (json.contains("tensors")) STRIA_RETURN_IF_ERROR(CheckTensors(folder, json["tensors"]));
  const Json plans = At(json, {"kaizen", "plans"});
  if (!plans.is_array()) return absl::InvalidArgumentError("it offers no plans");
  if (!lossless.is_number()) return absl::InvalidArgumentError("kaizen.lossless_ratio is missing");
  offer.lossless_ratio = lossless.get<double>();
  for (const Json& plan : plans) {
    STRIA_ASSIGN_OR_RETURN(offer.plans.emplace_back(), ReadPlan(plan, offer.plans.size()));
  }
  STRIA_RETURN_IF_ERROR(CheckOffer(offer));
  if (layers != offer.plans[0].layers.size()) {
    return absl::InvalidArgumentError(absl::StrCat("its plans have ", offer.plans[0].layers.size(), " layers, its model ", Quote(layers)));
  }
  if (!json.contains("inherit")) return offer;
  for (const PackOffer::Plan& plan : offer.plans) {
    for (const LayerAction& action : plan.layers) {
      if (action.kind == LayerAction::Kind::kInherit) return absl::InvalidArgumentError("its plans inherit through maps, which nothing serves yet");
    }
  }
  return offer;
}

}  // namespace

absl::StatusOr<PackOffer> ReadPack(const std::string& folder) {
  absl::StatusOr<PackOffer> offer = Read(folder);
  if (offer.ok()) return offer;
  return absl::Status(offer.status().code(), absl::StrCat("the pack ", folder, ": ", Text(offer.status())));
}

}  // namespace stria
