package web

import (
	"bytes"
	_ "embed"
	"fmt"
	"io/fs"
	"strings"
	"text/template"
)

// shared is a script of every page: elements, buttons, the clipboard.
//
//go:embed shared.js
var shared string

// Page is what a page is made of: index.html, a template, and its styles and scripts, files of Folder
// in the order in which a browser takes them.
type Page struct {
	Folder          fs.FS // part of this program
	Styles, Scripts []string
}

// Read reads files of the page.
func (p *Page) Read(names ...string) (texts []string) {
	for _, name := range names {
		text, err := fs.ReadFile(p.Folder, "page/"+name)
		if err != nil {
			panic(err) // go:embed has them all
		}
		texts = append(texts, strings.TrimSpace(string(text)))
	}
	return texts
}

// HTML is the page as one file. Its policy lets it run its own scripts, among them shared.js, and no
// others, and ask connect alone ('self' or 'none'). more are further values of the template.
func (p *Page) HTML(connect string, more map[string]any) []byte {
	styles, scripts := p.Read(p.Styles...), append([]string{strings.TrimSpace(shared)}, p.Read(p.Scripts...)...)
	values := map[string]any{"Styles": styles, "Scripts": scripts,
		"Policy": fmt.Sprintf("default-src 'none'; base-uri 'none'; form-action 'none'; connect-src %s; style-src %s; script-src %s", connect, Hashes(styles), Hashes(scripts))}
	for name, value := range more {
		values[name] = value
	}
	var out bytes.Buffer
	if err := template.Must(template.New("page").Parse(p.Read("index.html")[0])).Execute(&out, values); err != nil {
		panic(err) // a buffer takes everything
	}
	return out.Bytes()
}
