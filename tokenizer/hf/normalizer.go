package hf

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/rivo/uniseg"

	"monotron/internal/exitcode"
	"monotron/tokenizer/bpe"
	"monotron/tokenizer/charsmap"
	"monotron/tokenizer/uni"
)

// aligned is a text of which head bytes, the first ones, come from the character
// that the complete text begins with. A splitter that asks where the text begins
// goes by them: the original keeps an alignment for each byte, which a dropped
// or joined character shifts.
type aligned struct {
	text string
	head int
}

// cut is the part between two positions.
func (a aligned) cut(from, to int) aligned {
	return aligned{a.text[from:to], max(0, min(a.head, to)-from)}
}

// prefixed is a behind s, which belongs to the character it meets.
func (a aligned) prefixed(s string) aligned {
	if a.head > 0 {
		a.head += len(s)
	}
	return aligned{s + a.text, a.head}
}

// normalizer changes a text before it is cut.
type normalizer func(aligned) (aligned, error)

// normalizer reads the part of that name; nil where it is null.
func (r *reader) normalizer(raw json.RawMessage) (normalizer, error) {
	if isNull(raw) {
		return nil, nil
	}
	// The parameters of all kinds.
	var n struct {
		Type        string
		Normalizers []json.RawMessage
		StripLeft   bool `json:"strip_left"`
		StripRight  bool `json:"strip_right"`
		Prepend     string
		Pattern     pattern
		Content     string
		Charsmap    string `json:"precompiled_charsmap"`
	}
	if err := r.part("normalizer", raw, &n); err != nil {
		return nil, err
	}
	// Unicode's forms; after them and a table of replacements characters may have joined.
	form := map[string]uni.Form{"NFC": uni.NFC, "NFD": uni.NFD, "NFKC": uni.NFKC, "NFKD": uni.NFKD}
	if f, ok := form[n.Type]; ok {
		r.joins = true
		return composing(func(s string) string { return uni.Normalize(f, s) }), nil
	}
	// All others.
	switch n.Type {
	case "Sequence":
		return r.normalizers(n.Normalizers)
	case "Lowercase":
		return plain(lowercase), nil
	case "Strip":
		return stripping(n.StripLeft, n.StripRight), nil
	case "StripAccents":
		return plain(dropping(uni.Accents())), nil
	case "Nmt":
		return plain(func(s string) string { return strings.Map(nmt, s) }), nil
	case "ByteLevel":
		return plain(func(s string) string { return bpe.Spell([]byte(s)) }), nil
	case "Prepend":
		return prepend(n.Prepend), nil
	case "Replace":
		return r.replaceAll(n.Pattern, n.Content)
	case "Precompiled":
		r.joins = true
		return r.precompiled(n.Charsmap)
	}
	return nil, r.unsupported("normalizer", n.Type)
}

func (r *reader) normalizers(parts []json.RawMessage) (normalizer, error) {
	var chain []normalizer
	if err := r.deeper(); err != nil {
		return nil, err
	}
	defer r.back()
	for _, raw := range parts {
		n, err := r.normalizer(raw)
		if err != nil {
			return nil, err
		}
		chain = append(chain, n)
	}
	return func(a aligned) (_ aligned, err error) {
		for _, n := range chain {
			if a, err = n(a); err != nil {
				return a, err
			}
		}
		return a, nil
	}, nil
}

// plain is a normalizer that cannot fail and gives each character what becomes
// of it: the head is what becomes of the head.
func plain(f func(string) string) normalizer {
	return func(a aligned) (aligned, error) {
		out := aligned{text: f(a.text)}
		if a.head > 0 {
			out.head = min(len(f(a.text[:a.head])), len(out.text))
		}
		return out, nil
	}
}

// composing is a normalizer that may join characters and move marks: to the head
// belong the characters that become of it alone, up to a mark that another one
// passes, and the character that its last one is joined to.
func composing(f func(string) string) normalizer {
	return func(a aligned) (aligned, error) {
		out := aligned{text: f(a.text)}
		if a.head == 0 || out.text == "" {
			return out, nil
		}
		alone := f(a.text[:a.head])
		next := func() (string, rune) {
			_, n := utf8.DecodeRuneInString(out.text[out.head:])
			c, _ := utf8.DecodeRuneInString(alone[out.head:])
			return out.text[:out.head+n], c
		}
		for out.head < len(alone) {
			upTo, c := next()
			same := strings.HasPrefix(alone, upTo)
			if same || out.head == 0 || !uni.Accents().Has(c) {
				out.head = len(upTo)
			}
			if !same {
				break
			}
		}
		return out, nil
	}
}

// prepend puts s before what is not empty.
func prepend(s string) normalizer {
	return func(a aligned) (aligned, error) {
		if a.text == "" {
			return a, nil
		}
		return a.prefixed(s), nil
	}
}

// lowercase lowers each character on its own: no final sigma.
func lowercase(s string) string {
	lower := uni.Lower()
	var b strings.Builder
	for _, c := range s {
		if low, ok := lower[c]; ok {
			b.WriteString(low)
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

func stripping(left, right bool) normalizer {
	white := uni.Spaces().Has
	return func(a aligned) (aligned, error) {
		from, to := 0, len(a.text)
		if right {
			to = len(strings.TrimRightFunc(a.text, white))
		}
		if left {
			from = to - len(strings.TrimLeftFunc(a.text[:to], white))
		}
		return a.cut(from, to), nil
	}
}

func dropping(set *uni.Set) func(string) string {
	return func(s string) string {
		return strings.Map(func(c rune) rune {
			if set.Has(c) {
				return -1
			}
			return c
		}, s)
	}
}

// nmt drops control characters and makes other white space a blank.
func nmt(c rune) rune {
	switch {
	case c >= 0x1 && c <= 0x8, c == 0xb, c >= 0xe && c <= 0x1f, c == 0x7f, c == 0x8f, c == 0x9f:
		return -1
	case c == '\t', c == '\n', c == '\f', c == '\r', c == 0x1680, c >= 0x200b && c <= 0x200f,
		c == 0x2028, c == 0x2029, c == 0x2581, c == 0xfeff, c == utf8.RuneError:
		return ' '
	}
	return c
}

// replaceAll is replace as a normalizer.
func (r *reader) replaceAll(p pattern, content string) (normalizer, error) {
	to, err := r.replace(p, content)
	if err != nil {
		return nil, err
	}
	nothing, err := to(aligned{})
	r.empty = r.empty || nothing.text != ""
	return to, err
}

func (r *reader) replace(p pattern, content string) (normalizer, error) {
	find, err := r.finder(p)
	if err != nil {
		return nil, err
	}
	return func(a aligned) (aligned, error) {
		var b strings.Builder
		done, head := 0, 0
		keep := func(to int) {
			b.WriteString(a.text[done:to])
			head += max(0, min(a.head, to)-done)
		}
		err := find(a.text, func(from, to int) {
			keep(from)
			b.WriteString(content)
			if to == 0 || to <= a.head { // it belongs to the last character of the match
				head += len(content)
			}
			done = to
		})
		keep(len(a.text))
		return aligned{b.String(), head}, err
	}, nil
}

// precompiled is SentencePiece's table of replacements, asked as its Rust twin
// asks it: a complete grapheme of under 6 bytes first, else each character.
func (r *reader) precompiled(encoded string) (normalizer, error) {
	// The table as SentencePiece stores it.
	data, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil, r.bad("the normalizer's precompiled_charsmap is not base64: %w", err)
	}
	if len(data) == 0 {
		return plain(func(s string) string { return s }), nil
	}
	m, err := charsmap.Parse(data)
	if err != nil {
		return nil, r.bad("the normalizer's precompiled_charsmap: %w", err)
	}
	// Short graphemes at once, others by character; what has no entry stays.
	return func(a aligned) (aligned, error) {
		out := transform{in: a}
		state := -1
		var g string
		for rest := a.text; rest != ""; {
			g, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
			if len(g) < 6 {
				if to, ok := m.Shortest(g); ok {
					out.replace(g, to)
					continue
				}
			}
			for _, c := range g {
				from := string(c)
				to, ok := m.Shortest(from)
				if !ok {
					to = from
				}
				out.replace(from, to)
			}
		}
		return aligned{out.text.String(), out.head()}, nil
	}, nil
}

// transform is a text under change: to each character of the new one belongs how
// many more (1) or fewer (below 0) there are with it. The original counts so, and
// loses what is dropped before the first: then all later ones are moved.
type transform struct {
	in      aligned
	text    strings.Builder
	sizes   []int // of the new characters, in bytes; none where no head is asked for
	changes []int
}

// replace writes to for from.
func (t *transform) replace(from, to string) {
	t.text.WriteString(to)
	if t.in.head == 0 {
		return
	}
	for _, c := range to {
		t.sizes, t.changes = append(t.sizes, utf8.RuneLen(c)), append(t.changes, 0)
	}
	n := len(t.changes)
	more := utf8.RuneCountInString(to) - utf8.RuneCountInString(from)
	for i := range max(0, more) {
		t.changes[n-1-i] = 1
	}
	if more < 0 && n > 0 {
		t.changes[n-1] += more
	}
}

// head are the bytes of the new text that belong to the head of the old.
func (t *transform) head() (head int) {
	at := 0 // in the old text
	for i, change := range t.changes {
		if at >= t.in.head && (change <= 0 || at > t.in.head) {
			break
		}
		head += t.sizes[i]
		for ; change <= 0 && at < len(t.in.text); change++ {
			_, n := utf8.DecodeRuneInString(t.in.text[at:])
			at += n
		}
	}
	return head
}

// pattern is {"String": s} or {"Regex": r}.
type pattern struct{ String, Regex *string }

// finder gives what visits the matches of p.
func (r *reader) finder(p pattern) (func(text string, visit func(from, to int)) error, error) {
	switch {
	case p.String != nil && *p.String != "":
		sub := *p.String
		return func(text string, visit func(from, to int)) error {
			for at := 0; ; {
				i := strings.Index(text[at:], sub)
				if i < 0 {
					return nil
				}
				visit(at+i, at+i+len(sub))
				at += i + len(sub)
			}
		}, nil
	case p.Regex != nil:
		e, err := compile(*p.Regex)
		if err != nil {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", r.path, err)
		}
		return e.each, nil
	}
	return nil, r.bad("a pattern has neither a String nor a Regex")
}
