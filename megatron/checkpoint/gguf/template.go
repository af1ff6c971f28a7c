package gguf

import (
	"errors"
	"strings"
	"text/template"

	"monotron/tokenizer/chat"
)

// turns is a chat template that puts fixed texts before and after each message.
type turns struct {
	head       string // before a conversation that does not begin with a system message
	system     [2]string
	user       [2]string
	assistant  [2]string
	generation string // before an answer
	noSystem   bool
}

// Texts of messages that no template has of its own.
const (
	markSystem = "QsystemQ"
	markUser   = "QuserQ"
	markAnswer = "QanswerQ"
	markAgain  = "QagainQ"
)

// turnsOf finds the fixed texts of a template by rendering conversations, and checks that
// they give what the template gives. bos is left out at the start: Ollama adds it.
func turnsOf(source chat.Source, bos string) (*turns, error) {
	t, err := chat.New(source)
	if err != nil {
		return nil, err
	}
	// Conversations that differ by one message each, with marks as contents.
	one, err1 := conversation(t, false, "user", markUser)
	two, err2 := conversation(t, false, "user", markUser, "assistant", markAnswer)
	three, err3 := conversation(t, false, "user", markUser, "assistant", markAnswer, "user", markAgain)
	asked, err4 := conversation(t, true, "user", markUser)
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return nil, err
	}
	// What a message adds, cut at its mark, is the fixed text around it.
	r := &turns{}
	again, ok1 := strings.CutPrefix(three, two)
	answer, ok2 := strings.CutPrefix(two, one)
	generation, ok3 := strings.CutPrefix(asked, one)
	before, after, ok4 := strings.Cut(again, markAgain)
	r.user = [2]string{before, after}
	before, after, ok5 := strings.Cut(answer, markAnswer)
	r.assistant, r.generation = [2]string{before, after}, generation
	// What stands before the first message.
	head, ok6 := strings.CutSuffix(one, r.user[0]+markUser+r.user[1])
	if !(ok1 && ok2 && ok3 && ok4 && ok5 && ok6) {
		return nil, errors.New("its text for a message depends on other messages")
	}
	r.head = strings.TrimPrefix(head, bos)
	if err := r.readSystem(t, bos); err != nil {
		return nil, err
	}
	return r, r.check(t, bos)
}

// readSystem finds the texts around a system message, where the template allows one.
func (r *turns) readSystem(t *chat.Template, bos string) error {
	text, err := conversation(t, false, "system", markSystem, "user", markUser)
	if err != nil {
		r.noSystem = true
		return nil
	}
	part, ok := strings.CutSuffix(text, r.user[0]+markUser+r.user[1])
	before, after, found := strings.Cut(strings.TrimPrefix(part, bos), markSystem)
	if !ok || !found {
		return errors.New("it writes the system text inside another message")
	}
	r.system = [2]string{before, after}
	return nil
}

// template is the same in Ollama's language, which is that of Go's templates.
func (r *turns) template() string {
	message := func(t [2]string) string { return t[0] + "{{ .Content }}" + t[1] }
	text := "{{ if .Messages }}"
	if r.head != "" {
		text += `{{ if ne (index .Messages 0).Role "system" }}` + r.head + "{{ end }}"
	}
	text += "{{ range .Messages }}"
	if !r.noSystem {
		text += `{{ if eq .Role "system" }}` + message(r.system) + "{{ end }}"
	}
	return text + `{{ if eq .Role "user" }}` + message(r.user) + `{{ end }}{{ if eq .Role "assistant" }}` + message(r.assistant) + "{{ end }}{{ end }}" + r.generation + "{{ end }}"
}

// check executes the translation on conversations and compares it with the original.
func (r *turns) check(t *chat.Template, bos string) error {
	// The text stands between three quotes.
	if strings.Contains(r.template(), `"""`) {
		return errors.New("it contains three double quotes in a row")
	}
	translated, err := template.New("").Parse(r.template())
	if err != nil {
		return err
	}
	// Conversations of 1, 3 and 5 messages, with and without system text.
	talk := []string{"user", "Hello there.", "assistant", "Hi!", "user", "Why?", "assistant", "Because.", "user", "And then?"}
	list := [][]string{talk[:2], talk[:6], talk}
	if !r.noSystem {
		list = append(list, append([]string{"system", "Be brief."}, talk[:2]...), append([]string{"system", "Be brief."}, talk...))
	}
	// Both templates give the same.
	type message struct{ Role, Content string }
	for _, c := range list {
		want, err := conversation(t, true, c...)
		if err != nil {
			return err
		}
		var messages []message
		for i := 0; i < len(c); i += 2 {
			messages = append(messages, message{c[i], c[i+1]})
		}
		var got strings.Builder
		if err := translated.Execute(&got, map[string]any{"Messages": messages}); err != nil {
			return err
		}
		if got.String() != strings.TrimPrefix(want, bos) {
			return errors.New("its text for longer conversations differs from the translation's")
		}
	}
	return nil
}
