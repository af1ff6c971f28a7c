package logits

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"text/tabwriter"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/inference"
	"monotron/tokenizer"
	"monotron/tools/internal/command"
)

// choice is a token that may follow.
type choice struct {
	ID      int     `json:"id"`
	Text    string  `json:"text,omitempty"`
	Logit   float32 `json:"logit"`
	LogProb float64 `json:"log_prob"`
}

// likeliest are the n tokens of largest logit, of equals the lower id first.
func likeliest(logits []float32, logProbs []float64, n int, tok tokenizer.Tokenizer) []choice {
	order := make([]int, len(logits))
	for i := range order {
		order[i] = i
	}
	sort.SliceStable(order, func(a, b int) bool { return logits[order[a]] > logits[order[b]] })
	var list []choice
	for _, id := range order[:min(n, len(order))] {
		list = append(list, choice{id, textOf(tok, int32(id)), logits[id], logProbs[id]})
	}
	return list
}

func textOf(tok tokenizer.Tokenizer, id int32) string {
	if tok == nil {
		return ""
	}
	return tok.Decode([]int32{id})
}

// objects prints one JSON object a position.
type objects struct {
	command.Printer
	prompt []int32
	tok    tokenizer.Tokenizer // nil: no texts
	top    int
}

// object is a position: its token, the log-probability of the prompt's next one
// (none at the last), and the logits of all tokens by id or of the likeliest.
type object struct {
	Position int       `json:"position"`
	ID       int32     `json:"id"`
	NextLog  *float64  `json:"next_log_prob,omitempty"`
	Logits   []float32 `json:"logits,omitempty"`
	Top      []choice  `json:"top,omitempty"`
}

func (o *objects) position(i int, logits []float32) error {
	line := object{Position: i, ID: o.prompt[i]}
	logProbs := inference.LogSoftmax(logits)
	if i+1 < len(o.prompt) {
		line.NextLog = &logProbs[o.prompt[i+1]]
	}
	if o.top > 0 {
		line.Top = likeliest(logits, logProbs, o.top, o.tok)
	} else {
		line.Logits = logits
	}
	text, err := json.Marshal(line)
	if err != nil {
		return exitcode.Errorf(exitcode.BadData, "position %d: %w: the weights have values that are not finite, or that are too large for their type", i, err)
	}
	o.Printf("%s\n", text)
	return o.Err
}

func (o *objects) end(err error) error { return err }

// table prints a line a position.
type table struct {
	command.Printer
	columns *tabwriter.Writer
	prompt  []int32
	tok     tokenizer.Tokenizer
	top     int
	loss    float64 // Σ −log p of the prompt's own tokens
	counted int
}

func newTable(w io.Writer, prompt []int32, tok tokenizer.Tokenizer, top int) *table {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	t := &table{Printer: command.Printer{W: columns}, columns: columns, prompt: prompt, tok: tok, top: top}
	t.Printf("position\ttoken\tlog p of next\tlikeliest next: logit, log p\n")
	return t
}

func (t *table) position(i int, logits []float32) error {
	logProbs := inference.LogSoftmax(logits)
	next := "-"
	if i+1 < len(t.prompt) {
		p := logProbs[t.prompt[i+1]]
		next = fmt.Sprintf("%.4f", p)
		t.loss -= p
		t.counted++
	}
	var cells []string
	for _, c := range likeliest(logits, logProbs, t.top, t.tok) {
		cells = append(cells, fmt.Sprintf("%s %.4f, %.4f", t.name(int32(c.ID)), c.Logit, c.LogProb))
	}
	t.Printf("%d\t%s\t%s\t%s\n", i, t.name(t.prompt[i]), next, strings.Join(cells, "\t"))
	return t.Err
}

// name is a token's id and, quoted, its text.
func (t *table) name(id int32) string {
	if t.tok == nil {
		return fmt.Sprint(id)
	}
	return fmt.Sprintf("%d %q", id, textOf(t.tok, id))
}

func (t *table) end(err error) error {
	if err != nil {
		return err
	}
	if t.counted > 0 {
		t.Printf("mean loss of the prompt's %d predicted tokens: %.6f\n", t.counted, t.loss/float64(t.counted))
	}
	if t.Err != nil {
		return t.Err
	}
	return exitcode.With(exitcode.IO, t.columns.Flush())
}

// file writes the safetensors file.
type file struct{ w *safetensors.Writer }

func newFile(path string, vocab int, prompt []int32, last bool) (*file, error) {
	positions := int64(len(prompt))
	if last {
		positions = min(1, positions)
	}
	w, err := safetensors.Create(path, []safetensors.Info{
		{Name: "ids", DType: "I32", Shape: []int64{int64(len(prompt))}},
		{Name: "logits", DType: "F32", Shape: []int64{positions, int64(vocab)}},
	}, nil)
	if err != nil {
		return nil, err
	}
	f := &file{w}
	if _, err := w.Write(device.AsBytes(slices.Clone(prompt))); err != nil {
		return nil, f.end(err)
	}
	return f, nil
}

func (f *file) position(_ int, logits []float32) error {
	_, err := f.w.Write(device.AsBytes(logits))
	return err
}

func (f *file) end(err error) error {
	if err != nil {
		f.w.Abort()
		return err
	}
	return f.w.Commit()
}
