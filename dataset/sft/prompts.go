package sft

import (
	"encoding/json"
	"errors"
	"fmt"

	"monotron/dataset"
	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// Prompt is a row that answers are sampled to.
type Prompt struct {
	Line   int64
	IDs    []int32                    // the prompt as the model gets it
	Text   json.RawMessage            // field prompt: a text or a list of messages
	Answer *string                    // field answer, what is right; nil: the row has none
	Fields map[string]json.RawMessage // all fields
}

// Prompts is the rows of a file whose prompts leave space for an answer. It is a dataset.Dataset of one
// pass over them, without anything to learn.
type Prompts struct {
	Rows   []Prompt
	Counts Counts
	length int
	pad    int32
}

// NewPrompts reads the rows of a file.
func NewPrompts(path string, tok tokenizer.Tokenizer, c Config) (*Prompts, error) {
	s, render := &Prompts{length: c.Length, pad: padOf(tok)}, &renderer{tok: tok, config: c}
	err := eachRow(path, render.prompt, func(_ string, line int64, p Prompt) error {
		s.Counts.Rows++
		if len(p.IDs) >= c.Length {
			s.Counts.Dropped++
			return nil
		}
		p.Line = line
		s.Counts.Tokens += len(p.IDs)
		s.Rows = append(s.Rows, p)
		return nil
	})
	if err == nil && len(s.Rows) == 0 {
		err = exitcode.Errorf(exitcode.BadData, "%s: none of the %d rows has a prompt of fewer than %d tokens; raise --seq-length", path, s.Counts.Rows, c.Length)
	}
	return s, err
}

// prompt reads a line.
func (r *renderer) prompt(text []byte) (p Prompt, err error) {
	f, err := object(text, `{"prompt": "...", "answer": "..."}`)
	if err != nil {
		return p, err
	}
	if !f.has("prompt") {
		return p, fmt.Errorf("the row has the fields %s; --tuning grpo needs the field prompt, a string or a list of messages", f.names())
	}
	// The prompt as it is written, which a reward command sees too.
	given, err := f.passage("prompt")
	if err != nil {
		return p, err
	}
	p.Text, p.Fields = f["prompt"], f
	if p.Answer, err = f.answer(); err != nil {
		return p, err
	}
	if r.config.NeedsAnswer && p.Answer == nil {
		return p, fieldError("answer", "the field is missing; --reward exact compares answers with this field")
	}
	// Template arguments of the row, then its tokens.
	var options row
	if err := f.options(&options); err != nil {
		return p, err
	}
	if p.IDs, err = r.promptIDs(&given, &options); err != nil {
		return p, fieldError("prompt", "%w", err)
	}
	if len(p.IDs) == 0 {
		return p, fieldError("prompt", "the prompt has no tokens; give at least one")
	}
	return p, r.check(p.IDs)
}

// promptIDs renders messages with the generation prompt, texts as they are.
func (r *renderer) promptIDs(p *passage, options *row) ([]int32, error) {
	if p.messages == nil {
		return r.tok.Encode(p.text)
	}
	t, err := r.template()
	if err != nil {
		return nil, err
	}
	text, err := t.Render(p.messages, r.options(options, true))
	if err != nil {
		return nil, fmt.Errorf("the chat template: %w", err)
	}
	return tokenizer.AppendPlain(r.tok, nil, text)
}

// answer reads the field of the right answer: a text, or a number as it is written; nil: there is none.
func (f fields) answer() (*string, error) {
	if !f.has("answer") {
		return nil, nil
	}
	var text string
	if json.Unmarshal(f["answer"], &text) == nil {
		return &text, nil
	}
	var number json.Number
	if json.Unmarshal(f["answer"], &number) != nil {
		return nil, fieldError("answer", "%w", errors.New("the value is neither a string nor a number"))
	}
	text = number.String()
	return &text, nil
}

// Len is the number of rows.
func (s *Prompts) Len() int64 { return int64(len(s.Rows)) }

// Sample is the prompt of row k.
func (s *Prompts) Sample(k int64) (dataset.Sample, error) {
	if k < 0 || k >= s.Len() {
		return dataset.Sample{}, exitcode.Errorf(exitcode.Internal, "internal error: row %d was requested, but there are %d rows; report this, and include the command line", k, s.Len())
	}
	out := s.With(k, nil)
	out.Row = k
	return out, nil
}

// With is the prompt of row k with an answer, whose tokens are learned.
func (s *Prompts) With(k int64, answer []int32) dataset.Sample {
	prompt := s.Rows[k].IDs
	d := &Document{IDs: append(prompt[:len(prompt):len(prompt)], answer...)}
	if len(answer) > 0 {
		d.Learn = [][2]int{{len(prompt), len(d.IDs)}}
	}
	out := laid([]*Document{d}, s.length, false, s.pad)
	out.Row = k
	return out
}

// String says what became of the rows.
func (s *Prompts) String() string {
	return fmt.Sprintf("%d rows have %d prompts with a total of %d tokens; %d prompts of at least --seq-length %d tokens are dropped", s.Counts.Rows, len(s.Rows), s.Counts.Tokens, s.Counts.Dropped, s.length)
}

// Groups says how often prompts come.
type Groups struct {
	Size       int // samples in a row that have one prompt
	Batch      int // samples of a step, a multiple of Size
	Iterations int // steps in a row that have the same prompts
}

// grouped repeats prompts in groups, without end.
type grouped struct {
	*epochs
	groups Groups
}

// Grouped is the training set of prompts.
func Grouped(set *Prompts, c Config, g Groups) dataset.Dataset {
	return &grouped{&epochs{set: set, seed: c.Seed, shuffle: c.Shuffle, epoch: -1}, g}
}

func (s *grouped) Sample(k int64) (dataset.Sample, error) {
	batch, size := int64(s.groups.Batch), int64(s.groups.Size)
	index := k/batch/int64(s.groups.Iterations)*(batch/size) + k%batch/size
	return s.epochs.Sample(index)
}

// PromptsOf are the prompts under a dataset; nil: it has none.
func PromptsOf(d dataset.Dataset) *Prompts {
	switch e := d.(type) {
	case *grouped:
		d = e.set
	case *epochs:
		d = e.set
	}
	p, _ := d.(*Prompts)
	return p
}
