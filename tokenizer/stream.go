package tokenizer

import (
	"unicode/utf8"

	"monotron/tokenizer/uni"
)

// Stream decodes ids as they come and gives out complete characters only: the first
// bytes of a character wait for the rest.
type Stream struct {
	t       Tokenizer
	pending []byte
}

func NewStream(t Tokenizer) *Stream { return &Stream{t: t} }

// Push adds an id and returns the text that is complete with it. Bytes that can
// be no part of a character come out as U+FFFD.
func (s *Stream) Push(id int32) string {
	s.pending = s.t.AppendBytes(s.pending, id)
	var out []byte
	at := 0
	for at < len(s.pending) && utf8.FullRune(s.pending[at:]) {
		r, n := utf8.DecodeRune(s.pending[at:])
		if r == utf8.RuneError && n == 1 {
			n = uni.Broken(s.pending[at:])
		}
		out = utf8.AppendRune(out, r)
		at += n
	}
	s.pending = append(s.pending[:0], s.pending[at:]...)
	return string(out)
}

// Flush gives what was still waiting, as U+FFFD, and starts afresh.
func (s *Stream) Flush() string {
	if len(s.pending) == 0 {
		return ""
	}
	s.pending = s.pending[:0]
	return "\uFFFD"
}
