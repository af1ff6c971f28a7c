package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
)

// source is what the descriptions say, in their order: files by name, then line by line.
type source struct {
	structs []record
	ops     []op
	enums   []enum
}

// record is a struct that C sees too.
type record struct {
	name   string
	fields []field
}

type field struct{ name, kind string }

// op is an argument struct with the line //op:name.
type op struct {
	name   string // adamw
	goName string // AdamW
	fields []field
}

// enum is a block of constants that count from 0.
type enum struct {
	of    string // its type; "" for bare numbers
	names []string
}

// choices are the enumerations that arguments hold, by name.
func (s *source) choices() (names []string) {
	for _, r := range s.structs {
		for _, f := range r.fields {
			if s.enumerated(f.kind) && !slices.Contains(names, f.kind) {
				names = append(names, f.kind)
			}
		}
	}
	slices.Sort(names)
	return names
}

func (s *source) enumerated(kind string) bool {
	return slices.ContainsFunc(s.enums, func(e enum) bool { return kind != "" && e.of == kind })
}

func read(folder string) (*source, error) {
	files, err := filepath.Glob(filepath.Join(folder, "op_*.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("no op_*.go in %s", folder)
	}
	files = append([]string{filepath.Join(folder, "dtype.go"), filepath.Join(folder, "activations", "activations.go")}, files...)
	s := &source{}
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, d := range file.Decls {
			if d, ok := d.(*ast.GenDecl); ok {
				s.declaration(d, strings.HasPrefix(filepath.Base(name), "op_"))
			}
		}
	}
	return s, nil
}

func (s *source) declaration(d *ast.GenDecl, described bool) {
	switch first := d.Specs[0].(type) {
	case *ast.ValueSpec:
		if d.Tok == token.CONST && len(first.Values) == 1 && isIota(first.Values[0]) {
			s.enums = append(s.enums, enumOf(d))
		}
	case *ast.TypeSpec:
		body, ok := first.Type.(*ast.StructType)
		if !ok || !described {
			return
		}
		r := record{first.Name.Name, fieldsOf(body)}
		s.structs = append(s.structs, r)
		if name := directive(d.Doc); name != "" {
			s.ops = append(s.ops, op{name, strings.TrimSuffix(r.name, "Args"), r.fields})
		}
	}
}

func isIota(x ast.Expr) bool {
	id, ok := x.(*ast.Ident)
	return ok && id.Name == "iota"
}

// enumOf leaves out the count at the end of a type's values (DTypes of DType), which C
// has no use for.
func enumOf(d *ast.GenDecl) (e enum) {
	if id, ok := d.Specs[0].(*ast.ValueSpec).Type.(*ast.Ident); ok {
		e.of = id.Name
	}
	for _, spec := range d.Specs {
		if name := spec.(*ast.ValueSpec).Names[0].Name; e.of == "" || name != e.of+"s" {
			e.names = append(e.names, name)
		}
	}
	return e
}

func fieldsOf(body *ast.StructType) (fields []field) {
	for _, f := range body.Fields.List {
		for _, name := range f.Names {
			fields = append(fields, field{name.Name, f.Type.(*ast.Ident).Name})
		}
	}
	return fields
}

// directive is the name behind //op: in a comment.
func directive(doc *ast.CommentGroup) string {
	if doc == nil {
		return ""
	}
	for _, line := range doc.List {
		if name, ok := strings.CutPrefix(line.Text, "//op:"); ok {
			return name
		}
	}
	return ""
}
