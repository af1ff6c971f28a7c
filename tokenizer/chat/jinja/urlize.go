package jinja

import (
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

func init() {
	if filters == nil {
		filters = map[string]filter{}
	}
	filters["urlize"] = filter{params: newSignature("trim_url_limit? nofollow? target? rel? extra_schemes?"), do: urlize}
	filters["wordwrap"] = filter{params: newSignature("width? break_long_words? wrapstring? break_on_hyphens?"), do: wordWrap}
}

// What counts as an address, as jinja2.utils has it.
var (
	webAddress = regexp.MustCompile(`(?i)^((https?://|www\.)(([\p{L}\p{N}_%-]+\.)+)?([a-z]{2,63}|xn--[\p{L}\p{N}_%]{2,59})|([\p{L}\p{N}_%-]{2,63}\.)+(com|net|int|edu|gov|org|info|mil)|(https?://)(([\d]{1,3})(\.[\d]{1,3}){3}|(\[([\da-f]{0,4}:){2}([\da-f]{0,4}:?){1,6}])))(?::[\d]{1,5})?(?:[/?#]\S*)?$`)
	mailbox    = regexp.MustCompile(`^\S+@[\p{L}\p{N}_][\p{L}\p{N}_.-]*\.[\p{L}\p{N}_]+$`)
	scheme     = regexp.MustCompile(`^([\p{L}\p{N}_.+-]{2,}:(/){0,2})$`)
	headMarks  = regexp.MustCompile(`^([(<]|&lt;)+`)
	tailMarks  = regexp.MustCompile(`([)>.,\n]|&gt;)+$`)
)

// linker writes links into a text.
type linker struct {
	r           *run
	limit       int // of the shown address; -1: none
	rel, target string
	schemes     []string
}

func urlize(r *run, v Value, args []Value) Value {
	l := &linker{r: r, limit: -1}
	if _, none := given(args[0]).(None); !none {
		if l.limit = index(args[0], "trim_url_limit"); l.limit < 0 {
			unsupported("urlize with a negative limit")
		}
	}
	// rel: noopener, the caller's words, nofollow; in order.
	rel := map[string]bool{"noopener": true}
	if s, is := textOf(given(args[3])); is {
		for _, part := range splitBlanks(s, len(s)+1, false) {
			rel[part] = true
		}
	} else if args[3] != nil && r.truth(args[3]) {
		typeError("rel is not text")
	}
	if r.flag(args[1]) {
		rel["nofollow"] = true
	}
	var parts []string
	for part := range rel {
		parts = append(parts, part)
	}
	slices.Sort(parts)
	l.rel = ` rel="` + r.escape(strings.Join(parts, " ")) + `"`
	// Target, and further schemes.
	if _, none := given(args[2]).(None); !none && r.truth(args[2]) {
		l.target = ` target="` + string(r.escaped(args[2])) + `"`
	}
	if _, none := given(args[4]).(None); !none {
		for _, s := range r.all(args[4]) {
			text := textArg(s)
			if !scheme.MatchString(text) {
				fail("FilterArgumentError", "%s is not a valid URI scheme prefix.", reprString(text))
			}
			l.schemes = append(l.schemes, text)
		}
	}
	return l.links(string(r.escaped(v)))
}

func (l *linker) links(s string) string {
	var out buffer
	for s != "" {
		at := strings.IndexFunc(s, isSpace)
		if at < 0 {
			at = len(s)
		}
		l.r.step(1 + 16*at)
		l.r.write(&out, l.word(s[:at]))
		rest := strings.TrimLeftFunc(s[at:], isSpace)
		l.r.write(&out, s[at:len(s)-len(rest)])
		s = rest
	}
	return l.r.take(&out)
}

func (l *linker) word(middle string) string {
	head := headMarks.FindString(middle)
	middle = middle[len(head):]
	tail := ""
	if strings.HasSuffix(middle, ")") || strings.HasSuffix(middle, ">") || strings.HasSuffix(middle, ".") || strings.HasSuffix(middle, ",") || strings.HasSuffix(middle, "&gt;") {
		tail = middle[tailStart(middle):]
		middle = strings.TrimSuffix(middle, tail)
	}
	for _, pair := range [][2]string{{"(", ")"}, {"<", ">"}, {"&lt;", "&gt;"}} {
		open := strings.Count(middle, pair[0])
		if open <= strings.Count(middle, pair[1]) {
			continue
		}
		for range min(open, strings.Count(tail, pair[1])) {
			end := strings.Index(tail, pair[1]) + len(pair[1])
			middle, tail = middle+tail[:end], tail[end:]
			l.r.step(1 + len(middle)/32)
		}
	}
	return head + l.link(middle) + tail
}

// tailStart is where the marks begin that end a word.
func tailStart(s string) int {
	if at := tailMarks.FindStringIndex(s); at != nil {
		return at[0]
	}
	return len(s)
}

func (l *linker) link(s string) string {
	shown := s
	if n := utf8.RuneCountInString(s); l.limit >= 0 && n > l.limit {
		shown = cut(s, 0, l.limit) + "..."
	}
	anchor := func(address, text string) string {
		return `<a href="` + address + `"` + l.rel + l.target + `>` + text + `</a>`
	}
	switch {
	case webAddress.MatchString(s):
		if strings.HasPrefix(s, "https://") || strings.HasPrefix(s, "http://") {
			return anchor(s, shown)
		}
		return anchor("https://"+s, shown)
	case strings.HasPrefix(s, "mailto:") && mailbox.MatchString(s[7:]):
		return `<a href="` + s + `">` + s[7:] + `</a>`
	case strings.Contains(s, "@") && !strings.HasPrefix(s, "www.") && !strings.HasPrefix(s, "@") && !strings.Contains(s, ":") && mailbox.MatchString(s):
		return `<a href="mailto:` + s + `">` + s + `</a>`
	}
	for _, scheme := range l.schemes {
		if s != scheme && strings.HasPrefix(s, scheme) {
			s = anchor(s, s)
		}
	}
	return s
}
