package sft

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"monotron/tokenizer"
	"monotron/tokenizer/chat"
)

// renderer turns rows into documents. It is used by several goroutines.
type renderer struct {
	tok    tokenizer.Tokenizer
	config Config
	now    time.Time // that templates see; zero: fixedDay
}

// fixedDay is the day that templates see, so that ids do not depend on when a run starts.
var fixedDay = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// document is a row as tokens: rendered, labelled, then truncated on the right.
func (r *renderer) document(text []byte) (d Document, err error) {
	row, err := parse(text, r.config.Template != nil)
	if err != nil {
		return d, err
	}
	// Tokens and what is learned, by the kind of row.
	switch row.kind {
	case conversation:
		d, err = r.conversation(row)
	case promptMessages:
		d, err = r.promptMessages(row)
	case promptText:
		d, err = r.promptText(row)
	case plainText:
		d, err = r.plain(row)
	case tokenRow:
		d = Document{IDs: row.ids, Learn: runs(row.learned)}
	}
	if err != nil {
		return d, err
	}
	// --train-on-prompts learns all tokens, but a row of tokens says itself.
	if r.config.LearnPrompts && row.kind != tokenRow {
		d.Learn = [][2]int{{0, len(d.IDs)}}
	}
	d.Unused = row.unused
	if err := r.check(d.IDs); err != nil {
		return d, err
	}
	// Packing with splits keeps the complete document; otherwise it is cut here.
	d.Length = len(d.IDs)
	if r.config.Packing != PackBFDSplit {
		d.truncate(r.config.Length)
	}
	return d, nil
}

// check refuses ids without an embedding.
func (r *renderer) check(ids []int32) error {
	for i, id := range ids {
		if id < 0 || int(id) >= r.tok.VocabSize() {
			return fmt.Errorf("token %d has the id %d; the tokenizer's ids are 0 to %d", i, id, r.tok.VocabSize()-1)
		}
	}
	return nil
}

// truncate keeps the first n tokens.
func (d *Document) truncate(n int) {
	if len(d.IDs) <= n {
		return
	}
	d.Cut, d.IDs = len(d.IDs)-n, d.IDs[:n:n]
	d.Learn = within(d.Learn, 0, n)
}

// within are the parts of spans inside [from, to), counted from `from`.
func within(spans [][2]int, from, to int) (out [][2]int) {
	for _, s := range spans {
		if a, b := max(from, s[0]), min(to, s[1]); a < b {
			out = append(out, [2]int{a - from, b - from})
		}
	}
	return out
}

// runs are the stretches of true.
func runs(mask []bool) (out [][2]int) {
	for i, on := range mask {
		switch n := len(out); {
		case !on:
		case n > 0 && out[n-1][1] == i:
			out[n-1][1]++
		default:
			out = append(out, [2]int{i, i + 1})
		}
	}
	return out
}

// ended is a text with the end-of-sequence token, unless it ends so already.
func (r *renderer) ended(text string) string {
	if r.config.EOS == "" || strings.HasSuffix(text, r.config.EOS) {
		return text
	}
	return text + r.config.EOS
}

// encode gives the ids of a text that ends a document.
func (r *renderer) encode(text string) ([]int32, error) {
	ids, err := r.tok.Encode(r.ended(text))
	if end := r.config.EndID; err == nil && r.config.EOS == "" && end >= 0 && (len(ids) == 0 || ids[len(ids)-1] != end) {
		ids = append(ids, end)
	}
	return ids, err
}

func (r *renderer) plain(row *row) (d Document, err error) {
	if d.IDs, err = r.encode(row.text); err != nil {
		return d, fieldError("text", "%w", err)
	}
	d.Learn = [][2]int{{0, len(d.IDs)}}
	return d, nil
}

// promptText learns what follows the longest beginning that the ids of the prompt alone and of
// both texts have in common.
func (r *renderer) promptText(row *row) (d Document, err error) {
	prompt, all, err := r.textParts(row.prompt, row.completion)
	d.IDs, d.Learn = all, [][2]int{{common(prompt, all), len(all)}}
	return d, err
}

// common is the length of the beginning that two lists share.
func common(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

// template is the chat template, or why a conversation cannot be rendered.
func (r *renderer) template() (*chat.Template, error) {
	if r.config.Template == nil {
		return nil, errors.New("the row is a conversation, but the tokenizer has no chat template; give a template with --chat-template FILE")
	}
	return r.config.Template, nil
}

func (r *renderer) options(row *row, generate bool) chat.Options {
	now := r.now
	if now.IsZero() {
		now = fixedDay
	}
	return chat.Options{AddGenerationPrompt: generate, Tools: row.tools, Variables: row.variables, Now: now}
}

// promptMessages learns what follows the prompt, rendered with the generation prompt.
func (r *renderer) promptMessages(row *row) (d Document, err error) {
	prompt, all, err := r.conversationParts(row, row.messages[:row.prompts], row.messages[row.prompts:])
	d.IDs, d.Learn = all, [][2]int{{common(prompt, all), len(all)}}
	return d, err
}
