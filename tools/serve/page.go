package serve

import (
	_ "embed"
	"net/http"
)

//go:embed page.html
var pageHTML []byte

// page is a page to chat with the model; it needs nothing but this server.
func page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'")
	w.Write(pageHTML)
}
