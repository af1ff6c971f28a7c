package sft

import (
	"errors"
	"fmt"
	"strings"

	"monotron/tokenizer"
	"monotron/tokenizer/chat"
)

// conversation learns what the assistant wrote: what the template's generation blocks say, or,
// where it has none, what each assistant message adds to the text before it.
func (r *renderer) conversation(row *row) (d Document, err error) {
	// The text, and the spans that generation blocks mark. Where rendering them fails, the text without.
	t, err := r.template()
	if err != nil {
		return d, err
	}
	out, err := t.RenderSpans(row.messages, r.options(row, false))
	if err != nil {
		if out.Text, err = t.Render(row.messages, r.options(row, false)); err != nil {
			return d, fieldError("messages", "the chat template: %w", err)
		}
		out.Spans = nil
	}
	// Tokens, and which characters each covers.
	if d.IDs, err = tokenizer.AppendPlain(r.tok, nil, out.Text); err != nil {
		return d, fieldError("messages", "%w", err)
	}
	positions := r.positions(d.IDs, out.Text)
	// What each message adds to the text before it: the turns, and spans for templates without generation blocks.
	spans, turns, wrong := r.prefixes(t, row, out.Text)
	for _, turn := range turns {
		d.Turns = append(d.Turns, Turn{At: positions.first(turn.from), Role: turn.role})
	}
	// Characters that are learned become ranges of tokens.
	switch {
	case r.config.LearnPrompts:
		return d, nil
	case len(out.Spans) > 0:
		for _, s := range out.Spans {
			d.Learn = append(d.Learn, [2]int{positions.touching(s[0]), positions.first(s[1])})
		}
	case wrong != nil:
		return d, wrong
	case len(spans) == 0:
		return d, fieldError("messages", "no message is from the assistant, so the row has nothing to learn; give the row an answer, or train on all tokens with --train-on-prompts")
	}
	if len(out.Spans) == 0 {
		for _, s := range spans {
			d.Learn = append(d.Learn, [2]int{positions.first(s[0]), positions.first(s[1])})
		}
	}
	d.Learn = joined(d.Learn)
	return d, nil
}

// joined drops empty spans and joins those that meet.
func joined(spans [][2]int) (out [][2]int) {
	for _, s := range spans {
		switch n := len(out); {
		case s[0] >= s[1]:
		case n > 0 && out[n-1][1] >= s[0]:
			out[n-1][1] = max(out[n-1][1], s[1])
		default:
			out = append(out, s)
		}
	}
	return out
}

// turn is where a message's part of the text begins, in bytes; an assistant's begins after the
// generation prompt.
type turn struct {
	role string
	from int
}

// prefixes finds each assistant message's bytes [from, to) by rendering the messages before it
// and those up to it. A template that writes something else for them than at the beginning of
// the text has no such spans: the error names the message.
func (r *renderer) prefixes(t *chat.Template, row *row, full string) (spans [][2]int, turns []turn, err error) {
	at := 0
	for i, m := range row.messages {
		role := roleOf(m)
		if role != "assistant" {
			if i > 0 && turns[i-1].role != "assistant" {
				at = max(at, r.upTo(t, row, i, full))
			}
			turns = append(turns, turn{role, at})
			continue
		}
		from, to, err := r.around(t, row, i, full)
		if err != nil {
			return spans, turns, err
		}
		spans, turns = append(spans, [2]int{from, to}), append(turns, turn{role, from})
		at = to
	}
	return spans, turns, nil
}

// upTo is where the text of the first n messages ends, 0 where they do not begin the text.
func (r *renderer) upTo(t *chat.Template, row *row, n int, full string) int {
	text, err := t.Render(row.messages[:n], r.options(row, false))
	if err != nil || !strings.HasPrefix(full, text) {
		return 0
	}
	return len(text)
}

// errNoPrefix is why a template cannot say what the assistant wrote.
var errNoPrefix = errors.New("add {% generation %} blocks to the template, or train on all tokens with --train-on-prompts")

// around is the assistant message i's part of the complete text.
func (r *renderer) around(t *chat.Template, row *row, i int, full string) (from, to int, err error) {
	wrong := func(format string, args ...any) error {
		return fieldError("messages", "message %d (assistant): the chat template does not show where the message begins and ends: %s; %w", i, fmt.Sprintf(format, args...), errNoPrefix)
	}
	before, err := t.Render(row.messages[:i], r.options(row, true))
	if err != nil {
		return 0, 0, wrong("the template cannot render the messages before this message: %v", err)
	}
	upto, err := t.Render(row.messages[:i+1], r.options(row, false))
	if err != nil {
		return 0, 0, wrong("the template cannot render the messages up to this message: %v", err)
	}
	switch {
	case !strings.HasPrefix(full, upto):
		return 0, 0, wrong("the text of the messages up to and including this message is not the beginning of the text of all messages")
	case !strings.HasPrefix(upto, before):
		return 0, 0, wrong("the text of the earlier messages, followed by the generation prompt, is not the beginning of the text that includes this message")
	}
	return len(before), len(upto), nil
}

// positions says which token a byte of the text is in.
type positions struct {
	ends []int // of each token, in bytes; nil: tokens do not spell the text
	ids  []int32
	text string
	tok  tokenizer.Tokenizer
}

func (r *renderer) positions(ids []int32, text string) positions {
	p := positions{ids: ids, text: text, tok: r.tok}
	var spelled []byte
	for _, id := range ids {
		spelled = r.tok.AppendBytes(spelled, id)
		p.ends = append(p.ends, len(spelled))
	}
	if string(spelled) != text {
		p.ends = nil
	}
	return p
}

// first is the first token that begins at the byte or after it.
func (p *positions) first(at int) int {
	if p.ends == nil {
		return p.byPrefix(at)
	}
	start := 0
	for i, end := range p.ends {
		if start >= at {
			return i
		}
		start = end
	}
	return len(p.ends)
}

// touching is the token that the byte is in.
func (p *positions) touching(at int) int {
	if p.ends == nil {
		return p.byPrefix(at)
	}
	for i, end := range p.ends {
		if end > at {
			return i
		}
	}
	return len(p.ends)
}

// byPrefix is how many tokens the text up to the byte has in common with all of it.
func (p *positions) byPrefix(at int) int {
	if at >= len(p.text) {
		return len(p.ids)
	}
	ids, err := tokenizer.AppendPlain(p.tok, nil, p.text[:at])
	if err != nil {
		return 0
	}
	return common(ids, p.ids)
}
