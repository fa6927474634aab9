#!/usr/bin/env python3
"""Writes unicode_tables.inc: the character classes and canonical compositions that Hugging Face `tokenizers` uses.

The classes are asked from the library itself, code point by code point, because each of its parts follows a Unicode
version of its own, and a letter that only one side knows changes token ids. Decompositions come from Python's
unicodedata, less those that the library does not know; combining classes are found from the order into which the
library sorts marks. Needs: pip install tokenizers. Run: python3 make_unicode_tables.py > unicode_tables.inc
"""
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
EVERYTHING = "".join(map(chr, CODE_POINTS))
NFC, NFD = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str


def members(regex):
    """Code points that `regex` matches."""
    rest = set(normalizers.Replace(Regex(regex), "").normalize_str(EVERYTHING))
    return {c for c in CODE_POINTS if chr(c) not in rest}


def ranges(value_of):
    """[(first, last, value)] of the code points with a value other than 0."""
    out = []
    for c in CODE_POINTS:
        value = value_of(c)
        if not value:
            continue
        if out and out[-1][1] == c - 1 and out[-1][2] == value:
            out[-1][1] = c
        else:
            out.append([c, c, value])
    return out


def emit(declaration, rows):
    print(f"{declaration} = {{")
    line = "   "
    for row in rows:
        if len(line) + 1 + len(row) > 108:
            print(line)
            line = "   "
        line += " " + row
    print(line + "\n};\n")


letters, numbers, spaces = members(r"\p{L}"), members(r"\p{N}"), members(r"\s")
split_digit = pre_tokenizers.Digits(individual_digits=True).pre_tokenize_str
digits = {c for c in CODE_POINTS if len(split_digit("x" + chr(c))) == 2}
assert numbers <= digits
kinds = {**{c: "kDigitOnly" for c in digits}, **{c: "kNumber" for c in numbers}, **{c: "kLetter" for c in letters},
         **{c: "kSpace" for c in spaces}}

# Canonical decompositions, one step, Hangul aside (those are arithmetic).
steps = {}
for c in CODE_POINTS:
    step = unicodedata.decomposition(chr(c))
    if step and "<" not in step and NFD(chr(c)) == unicodedata.normalize("NFD", chr(c)):
        steps[c] = [int(x, 16) for x in step.split()]
order = sorted(steps)
composable = sorted((steps[c], i) for i, c in enumerate(order)
                    if len(steps[c]) == 2 and NFC("".join(map(chr, steps[c]))) == chr(c))

# Combining classes: a mark of class k sorts after one of a lower class.
# One mark for each class; marks newer than the library's normaliser are none to it.
known = {}
for c in CODE_POINTS:
    if NFD("a\u0345" + chr(c)) == "a" + chr(c) + "\u0345" or c == 0x345:
        known.setdefault(unicodedata.combining(chr(c)), chr(c))
by_class = sorted(known.items())


def combining_class(c):
    mark = chr(c)
    if NFD(mark) != mark:
        return 0
    lower = [k for k, other in by_class if NFD("a" + mark + other) != "a" + mark + other]
    higher = [k for k, other in by_class if NFD("a" + other + mark) != "a" + other + mark]
    between = [k for k, _ in by_class if k not in lower and k not in higher]
    if not lower and not higher:
        return 0
    assert len(between) == 1 and between[0] == unicodedata.combining(mark), hex(c)
    return between[0]


# Only characters of category M that some Python release calls combining can have a class.
marks = {c: combining_class(c) for c in CODE_POINTS if unicodedata.combining(chr(c))}

print("// Made by make_unicode_tables.py; do not edit.\n")
emit("constexpr ClassRange kClassRanges[]", [f"{{0x{a:X}, 0x{b:X}, {k}}}," for a, b, k in ranges(kinds.get)])
emit("constexpr CombiningRange kCombiningRanges[]", [f"{{0x{a:X}, 0x{b:X}, {k}}}," for a, b, k in ranges(marks.get)])
emit("constexpr Decomposition kDecompositions[]",
     [f"{{0x{c:X}, 0x{steps[c][0]:X}, 0x{(steps[c] + [0])[1]:X}}}," for c in order])
print("// Indices into kDecompositions of the pairs that compose, sorted by pair.")
emit("constexpr unsigned short kCompositions[]", [f"{i}," for _, i in composable])
