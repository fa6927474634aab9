#include "services/ctl/table.h"

#include <algorithm>

namespace stria {
namespace {

const char* Escape(Colour colour) {
  switch (colour) {
    case Colour::kGreen: return "\033[32m";
    case Colour::kYellow: return "\033[33m";
    case Colour::kRed: return "\033[31m";
    case Colour::kBold: return "\033[1m";
    case Colour::kNone: return "";
  }
  return "";
}

// Characters, not bytes: UTF-8 continuation bytes take no column.
size_t Columns(const std::string& text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

}  // namespace

std::string Printable(std::string text) {
  std::replace_if(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; }, '?');
  return text;
}

std::string Table::Text(bool colour) const {
  std::vector<size_t> widths;
  for (const auto& row : rows_) {
    if (widths.size() < row.size()) widths.resize(row.size());
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], Columns(row[i].text));
  }
  std::string text;
  for (size_t r = 0; r < rows_.size(); ++r) {
    for (size_t i = 0; i < rows_[r].size(); ++i) {
      const Cell& cell = rows_[r][i];
      const Colour paint = r == 0 ? Colour::kBold : cell.colour;
      const bool painted = colour && paint != Colour::kNone;
      if (painted) text += Escape(paint);
      text += Printable(cell.text);
      if (painted) text += "\033[0m";
      if (i + 1 < rows_[r].size()) text.append(widths[i] - Columns(cell.text) + 2, ' ');
    }
    text += '\n';
  }
  return text;
}

}  // namespace stria
