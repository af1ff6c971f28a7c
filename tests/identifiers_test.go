package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// bannedInNames are the words of docs/glossary.md's last table that a name could have.
var bannedInNames = []string{"whole", "place", "places", "told", "tells", "held", "beside", "besides", "elsewhere",
	"look", "looks", "room", "rooms", "road", "roads", "anew"}

// allowedInNames are the parts of names that stay, each with its reason.
var allowedInNames = map[string]string{
	"InPlace": "the term of computing: the result overwrites the input",
	"inPlace": "the same",
	"placeCh": "PlaceChoices, an op: the verb",
	"PlaceCh": "the same",
}

// Claim (docs/glossary.md): no name that Go code declares has a word of the glossary's last table.
func TestLanguageOfIdentifiers(t *testing.T) {
	used, names := map[string]bool{}, 0
	err := walkSources(func(name string) error {
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Join(repository, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, id := range namesOf(file) {
			names++
			if word := bannedIn(id.Name, used); word != "" {
				t.Errorf("%s:%d: the name %s has the word %q; docs/glossary.md says what to write instead",
					name, files.Position(id.Pos()).Line, id.Name, word)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if names < 40000 {
		t.Errorf("found %d names; the reader is broken", names)
	}
	for _, part := range slices.Sorted(maps.Keys(allowedInNames)) {
		if !used[part] {
			t.Errorf("no name has the exception %q any more; remove it", part)
		}
	}
}

// Claim: names are divided at capitals and underscores, so that a banned word is found as a word of its own alone.
func TestIdentifiersAreDivided(t *testing.T) {
	for name, want := range map[string]string{
		"whole": "whole", "readWhole": "whole", "WholeQKV": "whole", "HTTPRoom": "room", "go_on_elsewhere": "elsewhere", "held8": "held",
		"wholesome": "", "replaces": "", "Broadcast": "", "InPlaceSum": "", "lookup": "", "headroom": "",
	} {
		if got := bannedIn(name, map[string]bool{}); got != want {
			t.Errorf("%s: found %q, want %q", name, got, want)
		}
	}
}

var nameWords = regexp.MustCompile(`[A-Z]+(?:[^a-zA-Z]|$)|[A-Z]?[a-z]+|[A-Z]`)

// bannedIn is the first banned word of a name; "": none. used collects the exceptions.
func bannedIn(name string, used map[string]bool) string {
	for part := range allowedInNames {
		if strings.Contains(name, part) {
			used[part] = true
			name = strings.ReplaceAll(name, part, "_")
		}
	}
	for _, word := range nameWords.FindAllString(name, -1) {
		if word = strings.ToLower(word); slices.Contains(bannedInNames, word) {
			return word
		}
	}
	return ""
}

// namesOf are the names that a file declares: functions, types, values, fields, parameters.
func namesOf(file *ast.File) (names []*ast.Ident) {
	add := func(list ...ast.Expr) {
		for _, x := range list {
			if id, is := x.(*ast.Ident); is {
				names = append(names, id)
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			names = append(names, n.Name)
		case *ast.TypeSpec:
			names = append(names, n.Name)
		case *ast.ValueSpec:
			names = append(names, n.Names...)
		case *ast.Field:
			names = append(names, n.Names...)
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				add(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				add(n.Key, n.Value)
			}
		}
		return true
	})
	return names
}
