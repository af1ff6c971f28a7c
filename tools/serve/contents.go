package serve

import (
	"encoding/json"
	"strings"

	"monotron/tokenizer/chat"
)

// renderTurns renders messages whose content may be a list of texts. A template that knows lists
// sees them as they are. One that does not would print the list itself, as Python writes it, or
// fail: it sees the texts, joined by newlines, as OpenAI's clients expect of every server.
func renderTurns(t *chat.Template, messages []message, o chat.Options) (string, error) {
	joined, lists := joinedContents(messages)
	text, err := t.Render(messages, o)
	if len(lists) == 0 || err == nil && !printsLists(text, lists) {
		return text, err
	}
	again, failed := t.Render(joined, o)
	if failed != nil && err != nil {
		return "", err
	}
	return again, failed
}

// joinedContents is messages with each list of texts as one text; lists are those as Python
// writes them.
func joinedContents(messages []message) (joined []message, lists []string) {
	for _, m := range messages {
		var turn map[string]json.RawMessage
		var parts []struct {
			Text string `json:"text"`
		}
		if json.Unmarshal(m, &turn) != nil || json.Unmarshal(turn["content"], &parts) != nil || parts == nil {
			joined = append(joined, m)
			continue
		}
		lists = append(lists, written(turn["content"]))
		texts := make([]string, len(parts))
		for i, p := range parts {
			texts[i] = p.Text
		}
		content, err := json.Marshal(strings.Join(texts, "\n"))
		if err == nil {
			if m, err = chat.With(m, "content", content); err != nil {
				continue // what was read can be written
			}
		}
		joined = append(joined, m)
	}
	return joined, lists
}

// written is a list as a template prints it; "" where it cannot.
func written(list json.RawMessage) string {
	lister, err := chat.New(chat.Source{Text: "{{ messages[0].content }}"})
	if err != nil {
		return ""
	}
	text, err := lister.Render([]message{message(`{"role":"user","content":` + string(list) + `}`)}, chat.Options{})
	if err != nil {
		return ""
	}
	return text
}

// printsLists reports whether a text has a list as Python writes it, maybe in other letters.
func printsLists(text string, lists []string) bool {
	text = strings.ToLower(text)
	for _, list := range lists {
		if list = strings.ToLower(strings.TrimSpace(list)); list != "" && strings.Contains(text, list) {
			return true
		}
	}
	return false
}
