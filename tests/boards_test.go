package tests

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// boardVariable is a variable in a query; those with two lines in front are Grafana's.
var boardVariable = regexp.MustCompile(`\$\{?([a-z]\w*)`)

// board is a Grafana dashboard as far as its import reads it.
type board struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     struct{ X, Y, W, H int }
		Targets     []struct{ RefID, Expr string }
	}
}

// TestBoardsCanBeImported: Grafana takes a board with a title, a uid and a schema version; panels that share an id, lie on each
// other or outside of the 24 columns are shown wrong, and a query of an unknown variable shows nothing.
func TestBoardsCanBeImported(t *testing.T) {
	for _, name := range []string{"train.json", "serve.json"} {
		text, err := os.ReadFile(filepath.Join(repository, "docs", "grafana", name))
		if err != nil {
			t.Fatal(err)
		}
		var b board
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if b.Title == "" || b.UID == "" || len(b.UID) > 40 || b.SchemaVersion < 36 {
			t.Errorf("%s: title %q, uid %q, schema version %d", name, b.Title, b.UID, b.SchemaVersion)
		}
		known := map[string]bool{}
		for _, v := range b.Templating.List {
			known[v.Name] = true
		}
		for _, m := range boardVariable.FindAllStringSubmatch(string(text), -1) {
			if !known[m[1]] {
				t.Errorf("%s: %s is no variable of it", name, m[0])
			}
		}
		checkPanels(t, name, &b)
	}
}

func checkPanels(t *testing.T, name string, b *board) {
	t.Helper()
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range b.Panels {
		if ids[p.ID] || p.ID == 0 || p.Title == "" || len(p.Targets) == 0 {
			t.Errorf("%s: panel %d %q has no id or title of its own, or no query", name, p.ID, p.Title)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if at := [2]int{x, y}; x < 0 || x >= 24 || taken[at] != "" {
					t.Fatalf("%s: %q lies outside, or on %q", name, p.Title, taken[at])
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if refs[q.RefID] || q.RefID == "" || q.Expr == "" {
				t.Errorf("%s: %q has a query without a letter of its own", name, p.Title)
			}
			refs[q.RefID] = true
		}
	}
}
