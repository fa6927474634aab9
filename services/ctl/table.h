// Columns for people: aligned, coloured only where the terminal is one.
#pragma once

#include <string>
#include <vector>

namespace stria {

enum class Colour { kNone, kGreen, kYellow, kRed, kBold };

struct Cell {
  std::string text;
  Colour colour = Colour::kNone;
  Cell(std::string text, Colour colour = Colour::kNone) : text(std::move(text)), colour(colour) {}
  Cell(const char* text) : text(text) {}
};

class Table {
 public:
  explicit Table(std::vector<Cell> header) { rows_.push_back(std::move(header)); }
  void Add(std::vector<Cell> row) { rows_.push_back(std::move(row)); }
  // Left-aligned, two spaces between columns, nothing after the last. Control characters of cells are shown as '?', so that no
  // name from outside can move a terminal's cursor.
  std::string Text(bool colour) const;

 private:
  std::vector<std::vector<Cell>> rows_;
};

// Text without control characters.
std::string Printable(std::string text);

}  // namespace stria
