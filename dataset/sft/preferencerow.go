package sft

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// answers is a line of preference data: a prompt with two answers, the better one first, or with
// one answer that has a label.
type answers struct {
	row            // options of the template
	prompt passage //
	list   []passage
	label  bool // of a single answer
}

// passage is a text or a list of messages.
type passage struct {
	text     string
	messages []json.RawMessage // nil: a text
}

// parsePreference reads a line of preference data.
func parsePreference(text []byte, rule Rule) (*answers, error) {
	f, err := object(text, `{"prompt": "...", "chosen": "...", "rejected": "..."}`)
	if err != nil {
		return nil, err
	}
	a, err := f.answers(rule)
	if err != nil {
		return nil, err
	}
	read := []string{"prompt", "completion"}
	if len(a.list) == 2 {
		read = []string{"prompt", "chosen", "rejected"}
	}
	a.unused = f.unused(read...)
	return a, f.options(&a.row)
}

// answers finds out by the fields whether the row is a pair or a single answer.
func (f fields) answers(rule Rule) (*answers, error) {
	pair, single := f.has("chosen") && f.has("rejected"), f.has("completion") && f.has("label")
	switch {
	case pair:
		return f.pair()
	case single && rule == RuleKTO:
		return f.single()
	case single:
		return nil, errors.New("the row is one answer with a label, which only --tuning kto can use; this method needs prompt, chosen and rejected")
	case f.has("chosen"):
		return nil, fieldError("rejected", "the field is missing; give the row the answer that is worse than chosen, or use --tuning kto with prompt, completion and label")
	case f.has("rejected"):
		return nil, fieldError("chosen", "the field is missing; give the row the answer that is better than rejected, or use --tuning kto with prompt, completion and label")
	case f.has("completion") && rule == RuleKTO:
		return nil, fieldError("label", "the field is missing; write true for a good answer, false for a bad one")
	case rule == RuleKTO:
		return nil, fmt.Errorf("the row has the fields %s; --tuning kto needs prompt, completion and label, or prompt, chosen and rejected", f.names())
	case f.has("messages") || f.has("completion") || f.has("text"):
		return nil, fmt.Errorf("the row has the fields %s, which are for --tuning sft; preference tuning needs prompt, chosen and rejected", f.names())
	}
	return nil, fmt.Errorf("the row has the fields %s; preference tuning needs prompt, chosen and rejected", f.names())
}

// passage reads a field as a text or a list of messages.
func (f fields) passage(name string) (p passage, err error) {
	if json.Unmarshal(f[name], &p.text) == nil {
		return p, nil
	}
	if len(f[name]) > 0 && f[name][0] != '[' {
		return p, fieldError(name, "the value is neither a string nor a list of messages")
	}
	p.messages, err = messageList(name, f[name])
	return p, err
}

// kind names what a passage is.
func (p *passage) kind() string {
	if p.messages != nil {
		return "a list of messages"
	}
	return "a string"
}

// alike refuses answers that are not of the prompt's kind.
func alike(prompt, answer *passage, name string) error {
	if (prompt.messages == nil) == (answer.messages == nil) {
		return nil
	}
	return fieldError(name, "the value is %s, but prompt is %s; write both as strings or both as lists of messages", answer.kind(), prompt.kind())
}

// pair reads chosen and rejected. Without a prompt, or a text next to conversations that
// contain it, the prompt is what both answers begin with.
func (f fields) pair() (*answers, error) {
	a := &answers{list: make([]passage, 2)}
	for i, name := range []string{"chosen", "rejected"} {
		var err error
		if a.list[i], err = f.passage(name); err != nil {
			return nil, err
		}
	}
	chosen, rejected := &a.list[0], &a.list[1]
	if (chosen.messages == nil) != (rejected.messages == nil) {
		return nil, fieldError("rejected", "the value is %s, but chosen is %s; write both as strings or both as lists of messages", rejected.kind(), chosen.kind())
	}
	if f.has("prompt") {
		var err error
		if a.prompt, err = f.passage("prompt"); err != nil {
			return nil, err
		}
		if a.prompt.messages != nil || chosen.messages == nil {
			return a, alike(&a.prompt, chosen, "chosen")
		}
	}
	if chosen.messages != nil {
		return a, a.extractMessages()
	}
	a.extractText()
	return a, nil
}

// extractText makes the prompt of the characters that both answers begin with, without a space
// at its end. Of answers of which one begins the other, the last common character stays with them.
func (a *answers) extractText() {
	chosen, rejected := []rune(a.list[0].text), []rune(a.list[1].text)
	n := shared(len(chosen), len(rejected), func(i int) bool { return chosen[i] == rejected[i] })
	if n > 0 && n < min(len(chosen), len(rejected)) && chosen[n] != rejected[n] && chosen[n-1] == ' ' {
		n--
	}
	a.prompt.text, a.list[0].text, a.list[1].text = string(chosen[:n]), string(chosen[n:]), string(rejected[n:])
}

// extractMessages makes the prompt of the messages that both answers begin with.
func (a *answers) extractMessages() error {
	chosen, rejected := a.list[0].messages, a.list[1].messages
	n := shared(len(chosen), len(rejected), func(i int) bool { return sameJSON(chosen[i], rejected[i]) })
	if n == 0 {
		return fieldError("prompt", "the field is missing, and chosen and rejected begin with different messages; give the row a prompt")
	}
	a.prompt, a.list[0].messages, a.list[1].messages = passage{messages: chosen[:n:n]}, chosen[n:], rejected[n:]
	return nil
}

// shared counts the entries that two lists of n and m begin with, at least one entry of the shorter
// list left out.
func shared(n, m int, same func(i int) bool) int {
	i := 0
	for i < min(n, m)-1 && same(i) {
		i++
	}
	return i
}

// sameJSON reports whether two values are equal, whatever the order of their fields.
func sameJSON(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return false
	}
	p, err1 := json.Marshal(x)
	q, err2 := json.Marshal(y)
	return err1 == nil && err2 == nil && slices.Equal(p, q)
}

// single reads prompt, completion and label.
func (f fields) single() (*answers, error) {
	if !f.has("prompt") {
		return nil, fieldError("prompt", "the field is missing; write \"\" for an answer without a prompt")
	}
	a := &answers{list: make([]passage, 1)}
	var err error
	if a.prompt, err = f.passage("prompt"); err != nil {
		return nil, err
	}
	if a.list[0], err = f.passage("completion"); err != nil {
		return nil, err
	}
	if a.label, err = f.truth("label"); err != nil {
		return nil, err
	}
	return a, alike(&a.prompt, &a.list[0], "completion")
}

// truth reads true or false, which some data sets write as 1 or 0.
func (f fields) truth(name string) (yes bool, err error) {
	if json.Unmarshal(f[name], &yes) == nil {
		return yes, nil
	}
	var n float64
	if json.Unmarshal(f[name], &n) == nil && (n == 0 || n == 1) {
		return n == 1, nil
	}
	return false, fieldError(name, "the value is neither true nor false; write true for a good answer, false for a bad one")
}
