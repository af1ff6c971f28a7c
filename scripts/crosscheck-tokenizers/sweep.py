"""Writes tokenizer/uni/tables.bin: what the originals think of every code point.

Each code point is shown to the Python package `tokenizers` (its regular
expressions, normalizers and splitters), since Go's own Unicode tables are of
another version. The file is a list of records: name length, name, record
length (varint), body; a set's body is varints (gap, length) of its ranges, a
map's body is varints (gap, length of the text) and the text.

usage: sweep.py OUTPUT
"""
import sys
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CATEGORIES = ("Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cn "
              "Han Hiragana Katakana Hangul").split()


def varint(n):
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def matched(pattern):
    """The code points a one-character pattern matches."""
    text = "".join(map(chr, POINTS))
    split = pre_tokenizers.Split(Regex(f"(?:{pattern})+"), "removed", invert=True)
    found = []
    for _, (first, last) in split.pre_tokenize_str(text):
        found += POINTS[first:last]
    return found


def where(test):
    return [c for c in POINTS if test(chr(c))]


def ranges(points):
    out, end = bytearray(), 0
    points = sorted(points)
    i = 0
    while i < len(points):
        j = i
        while j + 1 < len(points) and points[j + 1] == points[j] + 1:
            j += 1
        out += varint(points[i] - end) + varint(points[j] - points[i] + 1)
        end = points[j] + 1
        i = j + 1
    return bytes(out)


def mapping(pairs):
    out, end = bytearray(), 0
    for c, text in pairs:
        b = text.encode()
        out += varint(c - end) + varint(len(b)) + b
        end = c + 1
    return bytes(out)


def alone(splitter):
    """The code points that splitter cuts off from a letter before them."""
    return where(lambda s: len(splitter.pre_tokenize_str("a" + s)) > 1)


def main():
    records = [(name, ranges(matched(rf"\p{{{name}}}"))) for name in CATEGORIES]
    records += [(name, ranges(matched(pattern))) for name, pattern in (("word", r"\w"), ("space", r"\s"), ("digit", r"\d"))]
    white = pre_tokenizers.Whitespace()
    records.append(("rust word", ranges(where(lambda s: white.pre_tokenize_str("a" + s) == [("a" + s, (0, 2))]))))
    records.append(("numeric", ranges(alone(pre_tokenizers.Digits(individual_digits=True)))))
    records.append(("punctuation", ranges(alone(pre_tokenizers.Punctuation()))))
    strip, lower = normalizers.StripAccents(), normalizers.Lowercase()
    records.append(("accent", ranges(where(lambda s: strip.normalize_str(s) == ""))))
    records.append(("lower", mapping([(c, lower.normalize_str(chr(c))) for c in POINTS if lower.normalize_str(chr(c)) != chr(c)])))
    nfd, nfkd = normalizers.NFD(), normalizers.NFKD()
    # What normalization knows: characters that decompose, and marks. A mark moves in front of
    # U+0345 (class 240) when its class is from 1 to 239; one above 1 lets U+0334 (class 1) pass.
    records.append(("normal", ranges(where(lambda s: nfkd.normalize_str(s) != s
                                           or nfd.normalize_str("\u0345" + s).startswith(s)
                                           or nfd.normalize_str(s + "\u0334").startswith("\u0334")))))
    with open(sys.argv[1], "wb") as out:
        for name, body in records:
            out.write(varint(len(name)) + name.encode() + varint(len(body)) + body)
    print(unicodedata.unidata_version, {name: len(body) for name, body in records})


main()
