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

// allowedInNames are the words of names that stay, each with its reason.
var allowedInNames = map[string]string{
	"in place":      "the term of computing: the result overwrites the input",
	"place choices": "an op: the verb",
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
			for _, fault := range faultsOfName(id.Name, used) {
				t.Errorf("%s:%d: the name %s: %s", name, files.Position(id.Pos()).Line, id.Name, fault)
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
	for _, phrase := range slices.Sorted(maps.Keys(allowedInNames)) {
		if !used[phrase] {
			t.Errorf("no name has the exception %q any more; remove it", phrase)
		}
	}
}

// Claim: names are divided at capitals and underscores, so that a banned word is found as a word of its own alone.
func TestIdentifiersAreDivided(t *testing.T) {
	for name, faulty := range map[string]bool{
		"whole": true, "readWhole": true, "WholeQKV": true, "HTTPRoom": true, "is_elsewhere": true, "held8": true, "runGoesOn": true,
		"wholesome": false, "replaces": false, "Broadcast": false, "InPlaceSum": false, "lookup": false, "headroom": false,
	} {
		if got := faultsOfName(name, map[string]bool{}); len(got) > 0 != faulty {
			t.Errorf("%s: found %q", name, got)
		}
	}
}

var nameWords = regexp.MustCompile(`[A-Z]+(?:[^a-zA-Z]|$)|[A-Z]?[a-z]+|[A-Z]`)

// faultsOfName are the glossary's words in a name, read as a text; used collects the exceptions.
func faultsOfName(name string, used map[string]bool) []string {
	text := strings.ToLower(strings.Join(nameWords.FindAllString(name, -1), " "))
	for phrase := range allowedInNames {
		if strings.Contains(text, phrase) {
			used[phrase] = true
			text = strings.ReplaceAll(text, phrase, "")
		}
	}
	return faultsOf(text, map[string]bool{})
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
