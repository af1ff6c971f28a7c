package tests

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// renames are the files that may rename or link, and why. Whoever finishes a file does
// it by package atomicfile.
var renames = map[string]string{
	"internal/atomicfile/file.go":        "the place itself",
	"internal/atomicfile/folder.go":      "the place itself",
	"internal/golden/archive.go":         "tests alone: a folder of reference cases, named once it is complete",
	"megatron/checkpoint/native/disk.go": "folders that change hands, in steps that tests stop one by one",
	"mpu/health/folder.go":               "moves what an earlier run finished",
}

// TestFilesAreFinishedInOneFunction: no file gets its name by a rename of its own.
func TestFilesAreFinishedInOneFunction(t *testing.T) {
	found := map[string]bool{}
	err := walkSources(func(path string) error {
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			at, err := callsOf(path, "os", "Rename", "Link")
			for _, line := range at {
				found[path] = true
				if renames[path] == "" {
					t.Errorf("%s renames or links a file: let package whole do it, or say here why not", line)
				}
			}
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for path := range renames {
		if !found[path] {
			t.Errorf("%s renames nothing: its row is of no use", path)
		}
	}
}

// callsOf finds where a file names some functions of a package of Go's own.
func callsOf(path, pkg string, names ...string) (at []string, err error) {
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, filepath.Join(repository, path), nil, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); !ok || x.Name != pkg || x.Obj != nil {
			return true
		}
		for _, name := range names {
			if s.Sel.Name == name {
				at = append(at, files.Position(s.Pos()).String())
			}
		}
		return true
	})
	return at, nil
}
