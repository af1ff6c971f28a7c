// Command docpairs makes rows to tune on from Go's own sources: of each documented function, the question
// is its source on one line and the answer the first sentence of its comment: docpairs GOROOT PACKAGE.. writes a row of
// JSON for each to standard output.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"path/filepath"
	"strings"
)

// Limits of a pair: short rows are many in little time.
const (
	mostSource = 500 // bytes
	mostAnswer = 160
)

// instruction is what stands before the source.
const instruction = "Write the documentation sentence of this Go function: "

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "docpairs: name Go's root and packages of its sources, as in $(go env GOROOT) strings bytes")
		os.Exit(2)
	}
	out := bufio.NewWriter(os.Stdout)
	var err error
	for _, pkg := range os.Args[2:] {
		if err == nil {
			err = writePackage(out, filepath.Join(os.Args[1], "src", pkg))
		}
	}
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "docpairs:", err)
		os.Exit(1)
	}
}

// writePackage writes the pairs of a package's files in their order, tests left out.
func writePackage(out *bufio.Writer, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, filepath.Join(dir, e.Name()), nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, d := range file.Decls {
			if f, is := d.(*ast.FuncDecl); is {
				if err := writeFunction(out, files, f); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// writeFunction writes the pair of a function that has a sentence and is short.
func writeFunction(out *bufio.Writer, files *token.FileSet, f *ast.FuncDecl) error {
	answer := strings.Join(strings.Fields(new(doc.Package).Synopsis(f.Doc.Text())), " ")
	if f.Body == nil || !strings.HasPrefix(answer, f.Name.Name+" ") || len(answer) > mostAnswer {
		return nil
	}
	f.Doc = nil
	var source bytes.Buffer
	if err := printer.Fprint(&source, files, f); err != nil {
		return err
	}
	if source.Len() > mostSource {
		return nil
	}
	row := map[string]any{"messages": []message{{"user", instruction + strings.Join(strings.Fields(source.String()), " ")}, {"assistant", answer}}}
	line, err := json.Marshal(row)
	if err == nil {
		_, err = out.Write(append(line, '\n'))
	}
	return err
}
