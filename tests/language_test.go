package tests

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// banned finds the words of the last table of docs/glossary.md, a row each.
var banned = map[string]*regexp.Regexp{
	"whole, of one piece":             regexp.MustCompile(`(?i)\b(whole|of one piece)\b`),
	"place":                           regexp.MustCompile(`(?i)\bplaces?\b`),
	"told, tells, is told of":         regexp.MustCompile(`(?i)\b(told|tells)\b`),
	"held against, holds a case":      regexp.MustCompile(`(?i)\b(held|holds? a case)\b`),
	"beside":                          regexp.MustCompile(`(?i)\bbesides?\b`),
	"elsewhere":                       regexp.MustCompile(`(?i)\belsewhere\b`),
	"a look, looks at":                regexp.MustCompile(`(?i)\blook(s|ed|ing)?\b`),
	"room":                            regexp.MustCompile(`(?i)\brooms?\b`),
	"road":                            regexp.MustCompile(`(?i)\broads?\b`),
	"of what, that is there":          regexp.MustCompile(`(?i)\b(of (what|who)|that (is|are) there|that there (is|are))\b`),
	"by turns":                        regexp.MustCompile(`(?i)\bby turns\b`),
	"goes on, go on":                  regexp.MustCompile(`(?i)\b(goes|go|going|went) on\b`),
	"is no X, is none of X":           regexp.MustCompile(`(?i)\b(is|are) (no|none) [a-z]`),
	"it is built anew, begins anew":   regexp.MustCompile(`(?i)\banew\b`),
	"stands alone, stands above":      regexp.MustCompile(`(?i)\bstands? (alone|above|behind)\b`),
	"is to be, are to be (had, read)": regexp.MustCompile(`(?i)\b(is|are) (not )?to be (had|read|seen|reached|written|started)\b`),
}

// allowed are uses of those words that stay, each with its reason.
var allowed = map[string]string{
	"in place":             "the term of computing: the result overwrites the input",
	"is no longer":         "plain English, not a negated noun",
	"here is no":           "plain English for what does not exist",
	"here are no":          "plain English for what does not exist",
	"while looking for":    "message of Python and Jinja, letter for letter",
	"; looking for one of": "message of Jinja, letter for letter",
	"qk-layernorm-whole":   "name of a flag",
	"beside-shared":        "part of a layout's name in verify, which --only selects by",
}

// Claim (docs/glossary.md): no text that a user of the program sees has a word of the
// glossary's last table: errors, notes and help are string literals of Go files.
func TestLanguageOfTexts(t *testing.T) {
	used, texts := map[string]bool{}, 0
	err := walkSources(func(name string) error {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			return err
		}
		found, err := textsOf(name, source)
		texts += len(found)
		for _, x := range found {
			for _, fault := range faultsOf(x.text, used) {
				t.Errorf("%s: %s in %q", x.where, fault, x.text)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if texts < 3000 {
		t.Errorf("found %d texts; the reader is broken", texts)
	}
	for phrase := range allowed {
		if !used[phrase] {
			t.Errorf("no text has the exception %q any more; remove it", phrase)
		}
	}
}

// Claim (docs/glossary.md): every row of its last table has a pattern here, and there are no other patterns.
func TestLanguageCoversGlossary(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(repository, "docs", "glossary.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "## Words that are not used")
	var rows []string
	for line := range strings.Lines(table) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && !strings.HasPrefix(cells[1], "---") && strings.TrimSpace(cells[1]) != "word" {
			rows = append(rows, strings.TrimSpace(cells[1]))
		}
	}
	slices.Sort(rows)
	if want := slices.Sorted(maps.Keys(banned)); !slices.Equal(rows, want) {
		t.Errorf("the glossary has the rows %q, this test %q", rows, want)
	}
}

// Claim (docs/glossary.md): pages of the documentation have no more of those words than
// testdata/language.txt allows: a ceiling that only goes down (go test ./tests -run Language -update).
func TestLanguageOfPages(t *testing.T) {
	ceilings := readCeilings(t)
	counts := map[string]int{}
	count := func(name string) {
		if name != "README.md" && !strings.HasPrefix(name, "docs/") || name == "docs/glossary.md" { // which lists the words
			return
		}
		page, err := os.ReadFile(filepath.Join(repository, name))
		if err != nil {
			t.Fatal(err)
		}
		counts[name] = len(faultsOf(proseOf(string(page)), map[string]bool{}))
		if counts[name] > ceilings[name] {
			t.Errorf("%s has %d of the words that docs/glossary.md lists, %d are allowed: %q",
				name, counts[name], ceilings[name], faultsOf(proseOf(string(page)), map[string]bool{}))
		}
	}
	walk(t, ".md", count)
	for name := range ceilings {
		if _, is := counts[name]; !is {
			t.Errorf("testdata/language.txt has a ceiling for %s, which does not exist", name)
		}
	}
	if *update {
		writeCeilings(t, counts, ceilings)
	}
}

// Claim: the two readers find what they are for, and nothing else: each planted fault is
// found once, and names, patterns, tags and imports are not texts.
func TestLanguageFindsPlants(t *testing.T) {
	plants := map[string]string{
		"whole, of one piece": "the whole file", "place": "no place is left", "told, tells, is told of": "a rank is told",
		"held against, holds a case": "it held 3 MiB", "beside": "not beside the log", "elsewhere": "save it elsewhere",
		"a look, looks at": "look at --lr", "room": "no room for it", "road": "no road was found",
		"of what, that is there": "of what the rank sent", "by turns": "steps by turns", "goes on, go on": "training goes on",
		"is no X, is none of X": "%q is no number", "it is built anew, begins anew": "it is built anew",
		"stands alone, stands above": "what it said stands above", "is to be, are to be (had, read)": "it is not to be seen here",
	}
	for row := range banned {
		source := fmt.Sprintf("package p\n\nvar x = f(%q)\n", plants[row])
		texts, err := textsOf("p.go", []byte(source))
		if err != nil || len(texts) != 1 || texts[0].where != "p.go:3" {
			t.Fatalf("%s: texts %v, %v; want one in line 3", row, texts, err)
		}
		if faults := faultsOf(texts[0].text, map[string]bool{}); len(faults) != 1 || !strings.Contains(faults[0], row) {
			t.Errorf("%q: faults %q, want one of %q", plants[row], faults, row)
		}
		if faults := faultsOf(proseOf("a page with "+plants[row]), map[string]bool{}); len(faults) != 1 {
			t.Errorf("a page with %q: faults %q, want one", plants[row], faults)
		}
	}
	quiet := "package p\n\nimport \"a whole/place\"\n\n// whole place\ntype s struct {\n\tA int `json:\"a place\"`\n}\n\n" +
		"var r = regexp.MustCompile(\"whole place\")\nvar k = m[\"whole place\"]\nvar j = map[string]int{\"whole\": 1}\nvar w = \"whole\"\n"
	if texts, err := textsOf("p.go", []byte(quiet)); err != nil || len(texts) != 0 {
		t.Errorf("texts %v, %v; want none", texts, err)
	}
	for _, fine := range []string{"sums in place", "the flag `the whole`", "it is no longer open", "replaces wholesome lookups"} {
		if faults := faultsOf(proseOf(fine), map[string]bool{}); len(faults) != 0 {
			t.Errorf("%q: faults %q, want none", fine, faults)
		}
	}
	if text := proseOf("a\n```\nwhole\n```\nb `whole` c\n"); strings.Contains(text, "whole") {
		t.Errorf("prose %q has code", text)
	}
}

// faultsOf are the words of text that the glossary bans; used collects the exceptions.
func faultsOf(text string, used map[string]bool) (faults []string) {
	for phrase := range allowed {
		if strings.Contains(text, phrase) {
			used[phrase] = true
			text = strings.ReplaceAll(text, phrase, "")
		}
	}
	for _, row := range slices.Sorted(maps.Keys(banned)) {
		for _, at := range banned[row].FindAllStringIndex(text, -1) {
			from, to := max(0, at[0]-20), min(len(text), at[1]+20)
			faults = append(faults, fmt.Sprintf("%q (%s)", text[from:to], row))
		}
	}
	return faults
}

// A literal is one string of a Go file.
type literal struct{ where, text string }

// textsOf are the string literals of a Go file that may be shown to a user: those with a
// space other than an import path, struct tag, regular expression or key.
func textsOf(name string, source []byte) (texts []literal, err error) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, name, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec, *ast.IndexExpr:
			return false
		case *ast.Field:
			n.Tag = nil
		case *ast.CallExpr:
			if f, is := n.Fun.(*ast.SelectorExpr); is && strings.Contains(f.Sel.Name, "Compile") {
				return false
			}
		case *ast.BasicLit:
			if n.Kind != token.STRING {
				return false
			}
			text, wrong := strconv.Unquote(n.Value)
			if wrong != nil {
				err = wrong
			} else if strings.Contains(strings.TrimSpace(text), " ") {
				texts = append(texts, literal{fmt.Sprintf("%s:%d", path.Clean(name), files.Position(n.Pos()).Line), text})
			}
		}
		return true
	})
	return texts, err
}

// proseOf is a page without its code.
func proseOf(page string) string {
	var out strings.Builder
	code := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
			continue
		}
		if !code && !strings.HasPrefix(line, "    ") {
			out.WriteString(inlineCode.ReplaceAllString(line, "x"))
		}
	}
	return out.String()
}

var inlineCode = regexp.MustCompile("`[^`]*`")

const ceilingsFile = "testdata/language.txt"

// readCeilings are the numbers of banned words that pages may still have.
func readCeilings(t *testing.T) map[string]int {
	t.Helper()
	file, err := os.Open(filepath.FromSlash(ceilingsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ceilings := map[string]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var name string
		var n int
		if _, err := fmt.Sscanf(lines.Text(), "%s %d", &name, &n); err != nil {
			t.Fatalf("%s: %q: %v", ceilingsFile, lines.Text(), err)
		}
		ceilings[name] = n
	}
	return ceilings
}

// writeCeilings lowers the ceilings to counts; none rises, and pages without a fault have none.
func writeCeilings(t *testing.T, counts, ceilings map[string]int) {
	t.Helper()
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(ceilings)) {
		if n := min(ceilings[name], counts[name]); n > 0 {
			fmt.Fprintf(&out, "%s %d\n", name, n)
		}
	}
	if err := os.WriteFile(filepath.FromSlash(ceilingsFile), []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
