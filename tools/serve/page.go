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

// props answers with what the model is, for people.
func (s *server) props(w http.ResponseWriter, _ *http.Request, l *loaded) error {
	names := []string{s.name}
	for _, a := range s.load.Adapters {
		names = append(names, a.Name)
	}
	shape := &l.shape
	return reply(w, map[string]any{"model": s.name, "models": names, "chat": l.Template != nil, "parameters": shape.Parameters(), "layers": shape.NumLayers, "hidden_size": shape.HiddenSize,
		"vocabulary": l.Vocab, "context": l.Context, "weights": l.weights})
}
