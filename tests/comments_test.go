package tests

import (
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Claim (docs/glossary.md): no comment of Go, C and CUDA code has a word of the glossary's last table.
func TestLanguageOfComments(t *testing.T) {
	comments := 0
	err := walkSources(func(name string) error {
		texts, err := commentsOf(name)
		comments += len(texts)
		for _, text := range texts {
			for _, fault := range faultsOf(lookup.ReplaceAllString(text, ""), map[string]bool{}) {
				t.Errorf("%s: %s in the comment %q", name, fault, text)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if comments < 15000 {
		t.Errorf("found %d comments; the reader is broken", comments)
	}
}

// inC matches what may contain the beginning of a comment, and comments.
var inC = regexp.MustCompile(`(?s)"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|/\*.*?\*/|//[^\n]*`)

// commentsOf are the comments of a source file, without repeated text; of a generated file and of one in another language none.
func commentsOf(name string) (texts []string, err error) {
	source, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		return nil, err
	}
	switch path.Ext(name) {
	case ".go":
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, group := range file.Comments {
			if text := group.Text(); !strings.Contains(text, "#include") { // else it is C, before import "C"
				texts = append(texts, text)
			}
		}
	case ".c", ".h", ".cu":
		if strings.HasPrefix(string(source), "/* Code generated") {
			return nil, nil
		}
		for _, found := range inC.FindAllString(string(source), -1) {
			if strings.HasPrefix(found, "/") {
				texts = append(texts, strings.Join(strings.Fields(strings.ReplaceAll(found, "\n *", "\n")), " "))
			}
		}
	}
	for i, text := range texts {
		texts[i] = repeated.ReplaceAllString(strings.Join(strings.Fields(text), " "), "x")
	}
	return texts, nil
}

// lookup is the field's word for reading a table.
var lookup = regexp.MustCompile(`(?i)\blook(s|ed|ing)? (\w+ )?up\b`)

// repeated is text that a comment repeats: messages, names of other programs, code.
var repeated = regexp.MustCompile("\"[^\"]*\"|`[^`]*`")
