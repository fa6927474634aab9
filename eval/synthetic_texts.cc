#include "eval/synthetic_texts.h"

#include <iterator>

#include "absl/strings/str_cat.h"
#include "base/random.h"

namespace stria {
namespace {

constexpr const char* kNames[] = {"Amber", "Basil", "Cedar", "Delta", "Ember", "Fjord", "Grove", "Haven",
                                  "Indigo", "Juniper", "Kestrel", "Lagoon", "Maple", "Nectar", "Opal", "Prairie"};
constexpr const char* kNoise[] = {"The grass is green and the sky is blue. ", "The river runs past the old mill. ",
                                  "People walk to the market in the morning. ", "Rain is expected later in the week. "};

class Draws {
 public:
  Draws(uint64_t seed, uint64_t stream) : seed_(seed), stream_(stream) {}
  size_t Below(size_t n) { return static_cast<size_t>(Uniform(seed_, stream_, counter_++) * static_cast<double>(n)); }

 private:
  uint64_t seed_, stream_, counter_ = 0;
};

std::string NeedleBlock(Draws& draws) {
  const char* name = kNames[draws.Below(std::size(kNames))];
  const size_t number = 10'000 + draws.Below(90'000);
  std::string text;
  const size_t before = 2 + draws.Below(6);
  for (size_t i = 0; i < before; ++i) text += kNoise[draws.Below(std::size(kNoise))];
  absl::StrAppend(&text, "The special number of ", name, " is ", number, ". ");
  const size_t after = 4 + draws.Below(8);
  for (size_t i = 0; i < after; ++i) text += kNoise[draws.Below(std::size(kNoise))];
  absl::StrAppend(&text, "\nQuestion: What is the special number of ", name, "?\nAnswer: ", number, "\n\n");
  return text;
}

std::string TableBlock(Draws& draws) {
  constexpr size_t kPairs = 12;
  size_t keys[kPairs], values[kPairs];
  std::string text = "Look up the values of these keys.\n";
  for (size_t i = 0; i < kPairs; ++i) {
    keys[i] = 1000 + draws.Below(9000);
    values[i] = 1000 + draws.Below(9000);
    absl::StrAppend(&text, "key ", keys[i], " = ", values[i], "\n");
  }
  for (int question = 0; question < 3; ++question) {
    const size_t i = draws.Below(kPairs);
    absl::StrAppend(&text, "The value of key ", keys[i], " is ", values[i], ".\n");
  }
  return text + "\n";
}

}  // namespace

std::vector<std::string> MakeRetrievalTexts(size_t count, size_t bytes, uint64_t seed) {
  std::vector<std::string> texts(count);
  for (size_t i = 0; i < count; ++i) {
    Draws draws(seed, i);
    while (texts[i].size() < bytes) texts[i] += i % 2 == 0 ? NeedleBlock(draws) : TableBlock(draws);
  }
  return texts;
}

}  // namespace stria
