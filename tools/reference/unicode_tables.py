"""Writes src/model/unicode_tables.h: what the official tokenizer knows about Unicode.

The `tokenizers` library brings its own Unicode data (oniguruma's for the pre-tokenizer's regular expression, an
older one for NFC), so the engine takes its tables from there and gives the same ids with every system library.

    python tools/reference/unicode_tables.py src/model/unicode_tables.h
"""

import argparse
import pathlib

import regex  # only for the newest combining classes; its data is newer than that of `tokenizers`
from tokenizers import Regex, normalizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
# Blocks that Unicode 13 and 16 filled with letters that compose (Todhri, Tulu-Tigalari, Dives Akuru, Gurung
# Khema, Kirat Rai); all were empty in the Unicode version of the official NFC.
COMPOSING_BLOCKS = [
    (0x105C0, 0x105FF), (0x11380, 0x113FF), (0x11900, 0x1195F), (0x16100, 0x1613F), (0x16D40, 0x16D7F),
]


def matching(pattern):
    """The code points that the official regular expression engine matches with `pattern`."""
    remove = normalizers.Replace(Regex(pattern), "")
    kept = set()
    for start in range(0, len(CODE_POINTS), 4096):
        kept.update(remove.normalize_str("".join(map(chr, CODE_POINTS[start : start + 4096]))))
    return [c for c in CODE_POINTS if chr(c) not in kept]


def nfc_barriers():
    """Code points that newer NFC data reorders or composes and the official NFC leaves alone."""
    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str

    def is_reordered(char):
        low, high = "q" + char + "\u0334", "q\u0345" + char  # combining classes 1 and 240
        return nfc(low) != low or nfc(high) != high

    found = {c for first, last in COMPOSING_BLOCKS for c in range(first, last + 1)}
    for c in CODE_POINTS:
        char = chr(c)
        if regex.match(r"\P{ccc=0}", char) and not is_reordered(char):
            found.add(c)
        if regex.match(r"\p{dt=canonical}", char) and nfd(char) == char:
            found.add(c)
    for c in found:
        if nfd(chr(c)) != chr(c) or is_reordered(chr(c)):
            raise SystemExit(f"U+{c:04X} is not inert in the official NFC")
    return sorted(found)


def ranges(code_points):
    result = []
    for c in code_points:
        if result and result[-1][1] == c - 1:
            result[-1][1] = c
        else:
            result.append([c, c])
    return result


def table(name, comment, code_points):
    items = [f"{{0x{first:X}, 0x{last:X}}}," for first, last in ranges(code_points)]
    lines, line = [], "   "
    for item in items:
        if len(line) + 1 + len(item) > 110:
            lines.append(line)
            line = "   "
        line += " " + item
    lines.append(line)
    body = "\n".join(lines)
    return f"// {comment}\ninline constexpr CodePointRange {name}[] = {{\n{body}\n}};\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=pathlib.Path)
    args = parser.parse_args()
    parts = [
        "// Written by tools/reference/unicode_tables.py from the official tokenizer's own data. Do not edit.\n"
        "#pragma once\n\n#include <cstdint>\n\nnamespace qwen_image {\n\n// clang-format off\n"
        "struct CodePointRange { uint32_t first, last; };\n",
        table("kLetters", r"\p{L}", matching(r"\p{L}")),
        table("kNumbers", r"\p{N}", matching(r"\p{N}")),
        table("kSpaces", r"\s", matching(r"\s")),
        table("kNfcBarriers", "Newer than the official NFC, which leaves them alone.", nfc_barriers()),
        "// clang-format on\n\n}  // namespace qwen_image\n",
    ]
    args.output.write_text("\n".join(parts[:1] + parts[1:5]) + "\n" + parts[5], encoding="ascii")


if __name__ == "__main__":
    main()
