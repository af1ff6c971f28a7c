package tests

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Claim (docs/where.md): every name of the page is declared in the file that stands
// before it, and every flag that it names is one.
func TestPageOfDecisionsIsTrue(t *testing.T) {
	rows := 0
	for line := range strings.Lines(read(t, "docs/where.md")) {
		cells := strings.Split(line, " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) < 2 || cells[1] == "where |\n" {
			continue
		}
		rows++
		for _, wrong := range rowFaults(t, cells[0], strings.Join(cells[1:], " | ")) {
			t.Errorf("docs/where.md: %s", wrong)
		}
	}
	if rows < 150 {
		t.Errorf("found %d rows; the reader is broken", rows)
	}
}

// inBackquotes are the names of a row; flagNames the flags that a question speaks of.
var (
	inBackquotes = regexp.MustCompile("`([^`]+)`")
	flagNames    = regexp.MustCompile(`--([a-z][\w-]+)`)
)

// rowFaults is what is wrong with a row of a question and its files, behind each
// the names that are declared there.
func rowFaults(t *testing.T, question, files string) (faults []string) {
	file := ""
	for _, name := range inBackquotes.FindAllStringSubmatch(files, -1) {
		switch isFile := strings.Contains(name[1], "/") || name[1] == "main.go"; {
		case isFile && exists(name[1]):
			file = name[1]
		case isFile:
			faults = append(faults, name[1]+" is not there")
		case file == "":
			return append(faults, fmt.Sprintf("%s stands behind no file, in %q", name[1], files))
		case !declares(t, file, name[1]):
			faults = append(faults, fmt.Sprintf("%s is not in %s", name[1], file))
		}
	}
	if file == "" {
		faults = append(faults, fmt.Sprintf("%q names no file", files))
	}
	for _, flag := range flagNames.FindAllStringSubmatch(question, -1) {
		if !anyFlag(t, flag[1]) {
			faults = append(faults, flag[0]+" is no flag")
		}
	}
	return faults
}

// declares reports whether a file has a name: of Go, a declaration, a method or a field; of
// C, a function. A flag is there by its name in quotes.
func declares(t *testing.T, file, name string) bool {
	if flag, is := strings.CutPrefix(name, "--"); is {
		return strings.Contains(read(t, file), strconv.Quote(flag))
	}
	if filepath.Ext(file) != ".go" {
		return regexp.MustCompile(`(?m)^[a-z_].*\b` + regexp.QuoteMeta(name) + `\(.*\{`).MatchString(read(t, file))
	}
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range f.Decls {
		if declared(d, name) {
			return true
		}
	}
	return false
}

func declared(d ast.Decl, name string) bool {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return receiver(d)+d.Name.Name == name
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.Name == name || hasField(spec, name) {
					return true
				}
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					if n.Name == name {
						return true
					}
				}
			}
		}
	}
	return false
}

// receiver is the type of a method, with a dot; "" of a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return ""
	}
	of := d.Recv.List[0].Type
	if star, is := of.(*ast.StarExpr); is {
		of = star.X
	}
	if generic, is := of.(*ast.IndexExpr); is {
		of = generic.X
	}
	return fmt.Sprint(of) + "."
}

func hasField(of *ast.TypeSpec, name string) bool {
	s, is := of.Type.(*ast.StructType)
	if !is {
		return false
	}
	for _, field := range s.Fields.List {
		for _, n := range field.Names {
			if of.Name.Name+"."+n.Name == name {
				return true
			}
		}
	}
	return false
}

// anyFlag: a page about a command, or the table of flags, names it.
func anyFlag(t *testing.T, name string) (found bool) {
	walk(t, ".md", func(page string) {
		found = found || page != "docs/where.md" && strings.Contains(read(t, page), "--"+name)
	})
	return found
}

// TestRottenRowsAreCaught shows that the test above can fail.
func TestRottenRowsAreCaught(t *testing.T) {
	for question, files := range map[string]string{
		"a name that is not there": "`internal/exitcode/exitcode.go` `Codes`",
		"another type's method":    "`mpu/positions.go` `Span.Cut`",
		"no such field":            "`mpu/param.go` `Param.Decay`",
		"no such file":             "`internal/exitcode/faults.go`",
		"a name without a file":    "`main`",
		"nothing":                  "somewhere",
		"no such flag":             "`megatron/arguments/table/own.go` `--stall-minutes`",
		"`--no-such-flag-at-all`":  "`main.go` `main`",
		"no function of that name": "`csrc/cpu/isa.c` `mt_isa_nothing`",
	} {
		if len(rowFaults(t, question, files)) == 0 {
			t.Errorf("%s: %s was let through", question, files)
		}
	}
	for _, files := range []string{"`internal/exitcode/exitcode.go` `Code`, `CodeOf`, by `main.go` `main`", "`mpu/param.go` `Param.NoDecay`", "`csrc/cpu/isa.c` `detect`", "`megatron/arguments/table/own.go` `--stall-seconds`"} {
		if faults := rowFaults(t, "", files); faults != nil {
			t.Errorf("a good row was refused: %v", faults)
		}
	}
}
