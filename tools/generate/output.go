package generate

import (
	"encoding/json"
	"fmt"
	"strings"

	"monotron/megatron/inference"
	"monotron/tokenizer"
	"monotron/tools/internal/command"
)

// result is the object that --json prints.
type result struct {
	Prompt    *string   `json:"prompt,omitempty"`
	PromptIDs []int32   `json:"prompt_ids"`
	Text      *string   `json:"text,omitempty"`
	IDs       []int32   `json:"ids,omitempty"`
	LogProbs  []float64 `json:"log_probs,omitempty"`
	Beams     []beam    `json:"beams,omitempty"`
}

type beam struct {
	Text  *string `json:"text,omitempty"`
	IDs   []int32 `json:"ids"`
	Score float64 `json:"score"`
}

// writer prints what is generated.
type writer struct {
	command.Printer
	tok  tokenizer.Tokenizer // nil: ids are printed
	stop int32
	json bool
}

// generate prints the continuation of prompt and counts its tokens.
func (w *writer) generate(g *inference.Generator, prompt []int32, o options, echo bool) (tokens int, err error) {
	r := result{Prompt: w.text(prompt), PromptIDs: prompt}
	if o.beam.Beams > 1 {
		beams, err := g.Beam(prompt, o.beam)
		if err != nil {
			return 0, err
		}
		return w.beams(r, beams, echo)
	}
	if !w.json {
		o.sample.Emit = w.stream(prompt, echo)
	}
	out, err := g.Sample(prompt, o.sample)
	if err != nil {
		return 0, err
	}
	if w.json {
		r.IDs, r.Text, r.LogProbs = out.IDs, w.text(out.IDs), out.LogProbs
		return len(out.IDs), w.object(r)
	}
	o.sample.Emit(-1)
	return len(out.IDs), nil
}

// stream prints the prompt where asked, and returns what prints each token as it
// comes; -1 ends the text.
func (w *writer) stream(prompt []int32, echo bool) func(id int32) {
	text := idStream()
	if w.tok != nil {
		text = textStream(w.tok)
	}
	if echo {
		for _, id := range prompt {
			w.Printf("%s", text(id))
		}
	}
	return func(id int32) {
		switch {
		case id < 0:
			w.Printf("%s\n", text(id))
		case id != w.stop:
			w.Printf("%s", text(id))
		}
	}
}

// textStream gives the characters that are complete with each id; the rest at -1.
func textStream(tok tokenizer.Tokenizer) func(id int32) string {
	s := tokenizer.NewStream(tok)
	return func(id int32) string {
		if id < 0 {
			return s.Flush()
		}
		return s.Push(id)
	}
}

// idStream gives the ids themselves, with blanks between.
func idStream() func(id int32) string {
	between := ""
	return func(id int32) string {
		if id < 0 {
			return ""
		}
		text := between + fmt.Sprint(id)
		between = " "
		return text
	}
}

// beams prints the sequences, best first.
func (w *writer) beams(r result, found []inference.Beam, echo bool) (tokens int, err error) {
	for _, b := range found {
		tokens += len(b.IDs)
		r.Beams = append(r.Beams, beam{Text: w.text(b.IDs), IDs: b.IDs, Score: b.Score})
	}
	if w.json {
		return tokens, w.object(r)
	}
	for i, b := range found {
		w.Printf("beam %d, score %.4f:\n", i+1, b.Score)
		emit := w.stream(r.PromptIDs, echo)
		for _, id := range b.IDs {
			emit(id)
		}
		emit(-1)
	}
	return tokens, nil
}

// text decodes ids without the stop token at their end; nil without a tokenizer.
func (w *writer) text(ids []int32) *string {
	if w.tok == nil {
		return nil
	}
	if n := len(ids); n > 0 && w.stop >= 0 && ids[n-1] == w.stop {
		ids = ids[:n-1]
	}
	text := w.tok.Decode(ids)
	return &text
}

func (w *writer) object(r result) error {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return err
	}
	w.Printf("%s", b.String())
	return nil
}
