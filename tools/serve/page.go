package serve

import (
	"bytes"
	"embed"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"text/template"

	"monotron/internal/web"
)

//go:embed page
var pageFiles embed.FS

// pageHTML is the page to chat with the model, in one file; it needs nothing but this server.
var pageHTML = sync.OnceValue(func() []byte {
	read := func(name string) string {
		text, err := pageFiles.ReadFile("page/" + name)
		if err != nil {
			panic(err) // go:embed has them all
		}
		return strings.TrimSpace(string(text))
	}
	styles, scripts := []string{read("page.css")}, []string{read("markdown.js"), read("page.js")}
	var out bytes.Buffer
	err := template.Must(template.New("page").Parse(read("index.html"))).Execute(&out, map[string]any{"Styles": styles, "Scripts": scripts,
		"Policy": fmt.Sprintf("default-src 'none'; base-uri 'none'; form-action 'none'; connect-src 'self'; style-src %s; script-src %s", web.Hashes(styles), web.Hashes(scripts))})
	if err != nil {
		panic(err) // a buffer takes everything
	}
	return out.Bytes()
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
