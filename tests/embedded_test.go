package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// Claim (Go's io.Copy): a type that embeds a writer and has a Write of its own declares every
// method that would write past it: the embedded ReadFrom and WriteString are found first.
func TestNoWriterIsBypassed(t *testing.T) {
	past := map[string][]string{
		"bytes.Buffer":    {"ReadFrom", "WriteString", "WriteByte", "WriteRune"},
		"bufio.Writer":    {"ReadFrom", "WriteString", "WriteByte", "WriteRune"},
		"strings.Builder": {"WriteString", "WriteByte", "WriteRune"},
		"os.File":         {"ReadFrom", "WriteString", "WriteAt"},
	}
	embeds, methods := map[string]string{}, map[string]bool{}
	err := filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		at := filepath.Dir(path) + "."
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if s, is := n.Type.(*ast.StructType); is {
					for _, f := range s.Fields.List {
						if kind := typeName(f.Type); len(f.Names) == 0 && past[kind] != nil {
							embeds[at+n.Name.Name] = kind
						}
					}
				}
			case *ast.FuncDecl:
				if n.Recv != nil {
					methods[at+typeName(n.Recv.List[0].Type)+"."+n.Name.Name] = true
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, kind := range embeds {
		for _, method := range past[kind] {
			if methods[name+".Write"] && !methods[name+"."+method] {
				t.Errorf("%s embeds %s and has a Write, but the %s is %s's: make it a named field", name, kind, method, kind)
			}
		}
	}
}

// typeName is a type as it is written, without its star.
func typeName(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return typeName(e.X) + "." + e.Sel.Name
	}
	return ""
}
