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

// "int4" for keys and values, {"keys": "int8", "values": "int4"}, "inherit", or {"latent": …}, which is refused later.
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

void ReadMode(ObjectReader& kv, KvChoice* choice) {
  const std::string mode = kv.String("mode").value_or("auto");
  if (mode == "auto") return;
  if (mode == "kaizen") return kv.Fail("mode", absl::StrCat("'kaizen' ", kNoPack), "unsupported_value");
  choice->mode = mode == "plan" ? KvChoice::Mode::kPlan : KvChoice::Mode::kFixed;
  if (mode == "plan") return;
  const std::optional<Width> width = WidthNamed(mode);
  if (!width) return kv.Fail("mode", absl::StrCat("must be auto, fp16, int8, int4, int2 or plan, not ", Quote(Json(mode))), "unsupported_value");
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

}  // namespace

KvChoice ReadKv(ObjectReader& body, std::optional<ApiError>* error) {
  KvChoice choice;
  const Json* value = body.Find("kv");
  if (value == nullptr) return choice;
  ObjectReader kv(*value, "kv", error);
  ReadMode(kv, &choice);
  ReadLayers(kv, &choice);
  choice.keep = kv.Number("keep", 0, kMaxKeep);
  if (choice.keep == 0) kv.Fail("keep", "is 0: nothing would stay");
  choice.ratio = kv.Number("ratio", 1, kMaxRatio);
  kv.Refuse("guard", absl::StrCat("widens the plans of mode 'kaizen', which ", kNoPack));
  kv.RefuseRest();
  if (const auto fault = choice.Check()) kv.Fail(fault->field, fault->message, "unsupported_value");
  return choice;
}

}  // namespace stria
