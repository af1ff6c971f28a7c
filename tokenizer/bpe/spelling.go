package bpe

import "unicode/utf8"

// Spelling is the printable character GPT-2's files write for each byte: the
// byte's own where that is visible, else the next one from U+0100 on.
var Spelling = func() (table [256]rune) {
	next := rune(256)
	for b := range table {
		if visible := b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae; visible {
			table[b] = rune(b)
		} else {
			table[b] = next
			next++
		}
	}
	return table
}()

// Unspell undoes Spelling; nil where a character is not one of the 256.
func Unspell(token string) []byte {
	out := make([]byte, 0, utf8.RuneCountInString(token))
	for _, r := range token {
		b, ok := spelledByte(r)
		if !ok {
			return nil
		}
		out = append(out, b)
	}
	return out
}

func spelledByte(r rune) (byte, bool) {
	switch {
	case r < 256 && Spelling[r] == r:
		return byte(r), true
	case r >= 256 && r < 256+33:
		return byte(r - 256), true
	case r >= 256+33 && r < 256+67:
		return byte(r - 256 - 33 + 0x7f), true
	case r == 256+67:
		return 0xad, true
	}
	return 0, false
}

// Spell writes bytes in that spelling.
func Spell(b []byte) string {
	out := make([]byte, 0, 2*len(b))
	for _, c := range b {
		out = utf8.AppendRune(out, Spelling[c])
	}
	return string(out)
}
