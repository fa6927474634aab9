#include "services/scheduler/kv_reader.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace stria {
namespace {

constexpr char kNoPack[] = "needs a pack, and this model has none";
constexpr double kMaxRatio = 1e6, kMaxKeep = 1e9;

std::optional<Width> WidthNamed(const Json& name) {
  for (Width width : kAllWidths) {
    if (name == Name(width)) return width;
  }
  return std::nullopt;
}

void ReadMode(ObjectReader& kv, bool has_pack, KvChoice* choice) {
  const std::string mode = kv.String("mode").value_or("auto");
  if (mode == "auto") return;
  if (mode == "kaizen" && !has_pack) return kv.Fail("mode", absl::StrCat("'kaizen' ", kNoPack), "unsupported_value");
  choice->mode = mode == "plan" ? KvChoice::Mode::kPlan : mode == "kaizen" ? KvChoice::Mode::kKaizen : KvChoice::Mode::kFixed;
  if (choice->mode != KvChoice::Mode::kFixed) return;
  const std::optional<Width> width = WidthNamed(mode);
  if (!width) return kv.Fail("mode", absl::StrCat("must be auto, fp16, int8, int4, int2, plan or kaizen, not ", Quote(Json(mode))), "unsupported_value");
  choice->width = *width;
}

void ReadLayers(ObjectReader& kv, KvChoice* choice) {
  const Json* list = kv.Find("layers");
  if (list == nullptr) return;
  if (choice->mode != KvChoice::Mode::kPlan) return kv.Fail("layers", "needs mode 'plan'");
  if (!list->is_array()) return kv.Fail("layers", absl::StrCat("must be a list of actions, not ", Quote(*list)));
  for (size_t i = 0; i < list->size(); ++i) {
    const std::optional<LayerAction> action = ReadAction((*list)[i]);
    if (!action) {
      return kv.Fail("layers", absl::StrCat("has ", Quote((*list)[i]), " for layer ", i,
                                            "; an action is a width, {\"keys\": width, \"values\": width} or \"inherit\""));
    }
    choice->layers.push_back(*action);
  }
}

void ReadGuard(ObjectReader& kv, bool has_pack, KvChoice* choice) {
  constexpr char kWhat[] = "widens the plans of mode 'kaizen'";
  if (!has_pack) return kv.Refuse("guard", absl::StrCat(kWhat, ", which ", kNoPack));
  const Json* guard = kv.Find("guard");
  if (guard == nullptr) return;
  if (choice->mode != KvChoice::Mode::kKaizen) return kv.Fail("guard", absl::StrCat(kWhat, " only"), "unsupported_value");
  if (*guard != "off" && *guard != "widen") return kv.Fail("guard", absl::StrCat("must be off or widen, not ", Quote(*guard)));
  choice->widen = *guard == "widen";
}

}  // namespace

std::optional<LayerAction> ReadAction(const Json& value) {
  LayerAction action;
  if (value == "inherit") {
    action.kind = LayerAction::Kind::kInherit;
    return action;
  }
  if (value.is_object() && value.contains("latent")) {
    action.kind = LayerAction::Kind::kLatent;
    return action;
  }
  const bool pair = value.is_object() && value.size() == 2 && value.contains("keys") && value.contains("values");
  const std::optional<Width> keys = WidthNamed(pair ? value["keys"] : value), values = WidthNamed(pair ? value["values"] : value);
  if (!keys || !values) return std::nullopt;
  action.keys = *keys;
  action.values = *values;
  return action;
}

KvChoice ReadKv(ObjectReader& body, bool has_pack, std::optional<ApiError>* error) {
  KvChoice choice;
  const Json* value = body.Find("kv");
  if (value == nullptr) return choice;
  ObjectReader kv(*value, "kv", error);
  ReadMode(kv, has_pack, &choice);
  ReadLayers(kv, &choice);
  choice.keep = kv.Number("keep", 0, kMaxKeep);
  if (choice.keep == 0) kv.Fail("keep", "is 0: nothing would stay");
  choice.ratio = kv.Number("ratio", 1, kMaxRatio);
  ReadGuard(kv, has_pack, &choice);
  kv.RefuseRest();
  if (const auto fault = choice.Check(has_pack)) kv.Fail(fault->field, fault->message, "unsupported_value");
  return choice;
}

}  // namespace stria
