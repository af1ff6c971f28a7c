package serve

import (
	"embed"
	"net/http"
	"sync"

	"monotron/internal/web"
)

//go:embed page
var pageFiles embed.FS

// pageHTML is the page to chat with the model, in one file; it needs nothing but this server.
var pageHTML = sync.OnceValue(func() []byte {
	p := web.Page{Folder: pageFiles, Styles: []string{"page.css"}, Scripts: []string{"markdown.js", "page.js"}}
	return p.HTML("'self'", nil)
})

// page answers with the chat page.
func page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "frame-ancestors 'none'")
	_, _ = w.Write(pageHTML()) // the browser has gone
}

// examples are what the page proposes to begin with: messages, and texts to continue.
var examples = map[string][]string{
	"chat": {"What can you help me with?", "Explain how a bicycle stays upright, in three sentences.", "Write a haiku about autumn."},
	"text": {"Once upon a time", "The most important thing to know about the sea is", "def fibonacci(n):"},
}

// readable are those that the model's tokenizer can read and its context holds with an answer: some
// have only the characters of their training text.
func (l *loaded) readable() map[string][]string {
	list := map[string][]string{}
	for mode, texts := range examples {
		list[mode] = []string{}
		for _, text := range texts {
			if ids, err := l.encodeText("", text, true); err == nil && (l.Context == 0 || len(ids) <= l.Context/2) {
				list[mode] = append(list[mode], text)
			}
		}
	}
	return list
}

// props answers with what the model is, for people.
func (s *server) props(w http.ResponseWriter, _ *http.Request, l *loaded) error {
	names := []string{s.name}
	for _, a := range s.load.Adapters {
		names = append(names, a.Name)
	}
	shape := &l.shape
	return reply(w, map[string]any{"model": s.name, "models": names, "chat": l.Template != nil, "parameters": shape.Parameters(), "layers": shape.NumLayers, "hidden_size": shape.HiddenSize,
		"vocabulary": l.Vocab, "context": l.Context, "weights": l.weights, "examples": l.readable()})
}
