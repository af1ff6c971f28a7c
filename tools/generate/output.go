package generate

import (
	"encoding/json"
	"fmt"
	"slices"
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
	tok     tokenizer.Tokenizer // nil: ids are printed
	ends    []int32
	json    bool
	echo    bool // the prompt comes before what is new
	prompts int  // there are; of several, each text says whose it is
}

// generate prints the continuations of the number-th prompt and counts their tokens.
func (w *writer) generate(g *inference.Generator, number int, p prompt) (tokens int, err error) {
	if p.o.beam.Beams > 1 {
		found, err := g.Beam(p.ids, p.o.beam)
		if err != nil {
			return 0, err
		}
		if p.o.samples > 1 {
			found = found[:min(p.o.samples, len(found))]
		}
		return w.beams(number, p, found)
	}
	for i := range p.o.samples {
		p.o.sample.Number = uint32(i)
		n, err := w.sample(g, number, p)
		if err != nil {
			return 0, err
		}
		tokens += n
	}
	return tokens, nil
}

// sample prints one continuation and counts its tokens.
func (w *writer) sample(g *inference.Generator, number int, p prompt) (tokens int, err error) {
	o := p.o.sample
	if !w.json {
		if p.o.samples > 1 {
			w.Printf("%ssample %d:\n", w.heading(number, ", "), o.Number+1)
		} else {
			w.Printf("%s", w.heading(number, ":\n"))
		}
		o.Emit = w.stream(p.ids)
	}
	out, err := g.Sample(p.ids, o)
	if err != nil {
		return 0, err
	}
	if w.json {
		return len(out.IDs), w.object(result{Prompt: w.text(p.ids), PromptIDs: p.ids, IDs: out.IDs, Text: w.text(out.IDs), LogProbs: out.LogProbs})
	}
	o.Emit(-1)
	return len(out.IDs), nil
}

// heading names a prompt where there are several.
func (w *writer) heading(number int, end string) string {
	if w.prompts == 1 {
		return ""
	}
	return fmt.Sprintf("prompt %d%s", number, end)
}

// stream prints the prompt where asked, and returns what prints each token as it
// comes; -1 ends the text.
func (w *writer) stream(prompt []int32) func(id int32) {
	text := idStream()
	if w.tok != nil {
		text = textStream(w.tok)
	}
	if w.echo {
		for _, id := range prompt {
			w.Printf("%s", text(id))
		}
	}
	return func(id int32) {
		switch {
		case id < 0:
			w.Printf("%s\n", text(id))
		case !slices.Contains(w.ends, id):
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

// beams prints the sequences of a prompt, best first.
func (w *writer) beams(number int, p prompt, found []inference.Beam) (tokens int, err error) {
	r := result{Prompt: w.text(p.ids), PromptIDs: p.ids}
	for _, b := range found {
		tokens += len(b.IDs)
		r.Beams = append(r.Beams, beam{Text: w.text(b.IDs), IDs: b.IDs, Score: b.Score})
	}
	if w.json {
		return tokens, w.object(r)
	}
	for i, b := range found {
		w.Printf("%sbeam %d, score %.4f:\n", w.heading(number, ", "), i+1, b.Score)
		emit := w.stream(p.ids)
		for _, id := range b.IDs {
			emit(id)
		}
		emit(-1)
	}
	return tokens, nil
}

// text decodes ids without the token that ended them; nil without a tokenizer.
func (w *writer) text(ids []int32) *string {
	if w.tok == nil {
		return nil
	}
	if n := len(ids); n > 0 && slices.Contains(w.ends, ids[n-1]) {
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
