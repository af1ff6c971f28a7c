package punkt

import (
	"strings"
	"unicode/utf8"
)

// Splitter cuts text into sentences. It is safe for several goroutines.
type Splitter struct {
	params *Params
	// keep leaves the white space after a sentence on it (Megatron's
	// --keep-newlines); otherwise what lies between sentences is dropped.
	keep bool
}

func NewSplitter(p *Params, keepSpace bool) *Splitter { return &Splitter{p, keepSpace} }

// chunk is how many characters Megatron hands to NLTK at a time.
const chunk = 1_000_000

// Split gives the sentences of text, those of each million characters by
// themselves, as Megatron does.
func (s *Splitter) Split(text string) (sentences []string) {
	for len(text) > 0 {
		end := len(text)
		if end > chunk {
			n := 0
			for at := range text {
				if n == chunk {
					end = at
					break
				}
				n++
			}
		}
		sentences = append(sentences, s.sentences(text[:end])...)
		text = text[end:]
	}
	return sentences
}

// span is a sentence, text[start:end].
type span struct{ start, end int }

// sentences cuts at the ends found and moves closing quotes and brackets to the
// sentence they close.
func (s *Splitter) sentences(text string) (out []string) {
	spans := s.spans(text)
	moved := 0
	for i, a := range spans {
		a.start += moved
		moved = 0
		if i+1 < len(spans) {
			next := spans[i+1]
			if n := closers(text[next.start:max(next.start, next.end)]); n > 0 {
				closing := strings.TrimRightFunc(text[next.start:next.start+n], isSpace)
				out = append(out, text[a.start:next.start+len(closing)])
				moved = n
				continue
			}
		}
		if a.start < a.end {
			out = append(out, text[a.start:a.end])
		}
	}
	return out
}

// closers is the length of quotes and brackets at the start of s, with the white
// space after them, where white space, a dash or the end follows the first few.
func closers(s string) int {
	for i := 0; i < len(s) && strings.IndexByte(`"')]}`, s[i]) >= 0; i++ {
		rest := s[i+1:]
		trimmed := strings.TrimLeftFunc(rest, isSpace)
		if rest == "" || len(trimmed) < len(rest) || strings.HasPrefix(rest, "--") {
			return len(s) - len(trimmed)
		}
	}
	return 0
}

// spans cuts where a possible end is judged to be one.
func (s *Splitter) spans(text string) (list []span) {
	last := 0
	s.candidates(text, func(c candidate, context string) {
		if !s.params.hasEnd(context) {
			return
		}
		list = append(list, span{last, c.end})
		last = c.end
		if c.next >= 0 {
			last = c.next
		}
	})
	return append(list, span{last, len(strings.TrimRightFunc(text, isSpace))})
}

// candidate is a position where a sentence may end: text[start:end] is the sign (in
// keep mode the word and the space around it), text[after:afterEnd] what follows,
// next the position of the next word, -1 where punctuation follows.
type candidate struct {
	start, end, after, afterEnd int
	next                        int
}

// candidates calls judge with each possible end and the text to judge it by: the
// word before it, the sign, what follows. Of signs within one word only the last
// counts.
func (s *Splitter) candidates(text string, judge func(c candidate, context string)) {
	find := s.sign
	if s.keep {
		find = s.word
	}
	var previous candidate
	wordStart, wordEnd, have := 0, 0, false
	context := func() string {
		return text[wordStart:wordEnd] + text[previous.start:previous.end] + text[previous.after:previous.afterEnd]
	}
	for at := 0; ; {
		c, ok := find(text, at)
		if !ok {
			break
		}
		// The word before the sign begins behind the last blank; without one it is the last sign's word.
		start := wordEnd
		if space := strings.LastIndexAny(text[wordEnd:c.start], " \n\t\r\v\f"); space > 0 {
			start += space + 1
		} else {
			start = wordStart
		}
		if have && wordEnd <= start {
			judge(previous, context())
		}
		previous, wordStart, wordEnd, have = c, start, c.start, true
		at = c.end
	}
	if have {
		judge(previous, context())
	}
}

// sign finds the next . ? or ! that punctuation, or white space and a word, follow.
func (s *Splitter) sign(text string, at int) (candidate, bool) {
	for ; at < len(text); at++ {
		i := strings.IndexAny(text[at:], ends)
		if i < 0 {
			break
		}
		at += i
		c := candidate{start: at, end: at + 1, after: at + 1, next: -1}
		r, n := utf8.DecodeRuneInString(text[at+1:])
		if in(nonWord, r) && n > 0 {
			c.afterEnd = at + 1 + n
			return c, true
		}
		if next := skipSpace(text, at+1); next > at+1 && next < len(text) {
			c.next, c.afterEnd = next, skipWord(text, next)
			return c, true
		}
	}
	return candidate{}, false
}

// word finds the next word that has a sign in it with something after: the sign
// is the last such one, and the white space after it belongs to the match.
func (s *Splitter) word(text string, at int) (candidate, bool) {
	for {
		at = skipSpace(text, at)
		if at == len(text) {
			return candidate{}, false
		}
		end := skipWord(text, at)
		for k := end - 1; k >= at; k-- {
			if strings.IndexByte(ends, text[k]) < 0 {
				continue
			}
			after := skipSpace(text, k+1)
			if after == len(text) {
				continue
			}
			c := candidate{start: at, end: after, after: after, next: -1}
			if r, n := utf8.DecodeRuneInString(text[after:]); in(nonWord, r) {
				c.afterEnd = after + n
			} else {
				c.next, c.afterEnd = after, skipWord(text, after)
			}
			return c, true
		}
		at = end
	}
}

func skipSpace(text string, at int) int {
	return len(text) - len(strings.TrimLeftFunc(text[at:], isSpace))
}

func skipWord(text string, at int) int {
	if n := strings.IndexFunc(text[at:], isSpace); n >= 0 {
		return at + n
	}
	return len(text)
}
