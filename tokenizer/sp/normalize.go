package sp

import (
	"strings"
	"unicode/utf8"

	"monotron/tokenizer/charsmap"
	"monotron/tokenizer/trie"
)

// blank is what a space becomes in pieces, U+2581.
const blank = "\u2581"

// normalizer rewrites text before it is cut: user-defined symbols stay as they
// are, the charsmap's longest match is replaced, blanks are joined and made
// visible.
type normalizer struct {
	rules
	suffix  bool
	symbols *trie.Trie // user-defined; nil: none
	chars   *charsmap.Map
}

func newNormalizer(r rules, suffix bool, symbols *trie.Trie) (*normalizer, error) {
	n := &normalizer{rules: r, suffix: suffix, symbols: symbols}
	if len(r.charsmap) == 0 {
		return n, nil
	}
	var err error
	n.chars, err = charsmap.Parse(r.charsmap)
	return n, err
}

// prefix is what the first characters of text, n bytes, become.
func (n *normalizer) prefix(text string) (to string, size int) {
	if n.symbols != nil {
		if size, _ := n.symbols.Longest(text); size > 0 {
			return text[:size], size
		}
	}
	if n.chars != nil {
		if size, to := n.chars.Longest(text); size > 0 {
			return to, size
		}
	}
	_, size = utf8.DecodeRuneInString(text)
	return text[:size], size
}

func (n *normalizer) apply(text string) string {
	// Blanks at the beginning go.
	if n.removeExtra {
		for text != "" {
			to, size := n.prefix(text)
			if to != " " {
				break
			}
			text = text[size:]
		}
	}
	if text == "" {
		return ""
	}
	space := " "
	if n.escapeBlanks {
		space = blank
	}
	var b strings.Builder
	b.Grow(len(text) + len(text)/2 + 8)
	if n.dummyPrefix && !n.suffix {
		b.WriteString(space)
	}
	// Characters are replaced; of several blanks one is left.
	afterBlank := n.removeExtra
	for text != "" {
		to, size := n.prefix(text)
		text = text[size:]
		if afterBlank {
			to = strings.TrimLeft(to, " ")
		}
		if to != "" {
			b.WriteString(strings.ReplaceAll(to, " ", space))
			afterBlank = n.removeExtra && strings.HasSuffix(to, " ")
		}
		if !n.removeExtra {
			afterBlank = false
		}
	}
	out := b.String()
	// Blanks at the end go.
	if n.removeExtra {
		for strings.HasSuffix(out, space) {
			out = strings.TrimSuffix(out, space)
		}
	}
	if n.dummyPrefix && n.suffix {
		out += space
	}
	return out
}
