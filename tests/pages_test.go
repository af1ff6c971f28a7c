package tests

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A package with more files than this has its comment in doc.go, with a reading order.
const manyFiles = 3

// Claim (docs/testing.md): its table names every subject of the long proofs.
func TestTestingPageNamesEveryProof(t *testing.T) {
	page, err := os.ReadFile("../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir("proofs")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if entry.IsDir() && !strings.Contains(string(page), "\n| `"+entry.Name()+"` | ") {
			t.Errorf("docs/testing.md has no row for tests/proofs/%s", entry.Name())
		}
	}
}

// Claim (docs/developing.md): every folder with Go files says in one package comment what
// it is for; where files are many, in doc.go and with a reading order; and the files that
// a comment names are there.
func TestPackageComments(t *testing.T) {
	packages := packageFiles(t)
	if len(packages) < 50 {
		t.Fatalf("found %d packages; the reader is broken", len(packages))
	}
	for folder, files := range packages {
		for _, wrong := range commentFaults(t, folder, files) {
			t.Errorf("%s: %s", folder, wrong)
		}
	}
}

// commentFaults is what is wrong with the comment of a package.
func commentFaults(t *testing.T, folder string, files []string) (faults []string) {
	texts, where := packageComments(t, folder, files)
	if len(texts) != 1 {
		return []string{fmt.Sprintf("has %d package comments, in %v; one says what it is for", len(texts), where)}
	}
	text := texts[0]
	if len(strings.Fields(text)) < 10 {
		faults = append(faults, fmt.Sprintf("%q says too little", text))
	}
	if len(files) > manyFiles && where[0] != "doc.go" {
		faults = append(faults, fmt.Sprintf("has %d files: its comment belongs in doc.go", len(files)))
	}
	named := goFiles.FindAllString(text, -1)
	if len(files) > manyFiles+1 && len(named) < manyFiles {
		faults = append(faults, fmt.Sprintf("has %d files, and its comment no reading order", len(files)))
	}
	for _, name := range append(named, pageNames.FindAllString(text, -1)...) {
		if !exists(filepath.Join(folder, name)) && !exists(name) {
			faults = append(faults, name+" is named in its comment, and not there")
		}
	}
	return faults
}

// goFiles are names of Go files, also with a star; pageNames pages of the documentation.
var (
	goFiles   = regexp.MustCompile(`[\w/*]+\.go\b`)
	pageNames = regexp.MustCompile(`docs/[\w-]+\.md\b`)
)

// exists: something in the repository has this name, which may hold stars.
func exists(pattern string) bool {
	found, err := filepath.Glob(filepath.Join(repository, pattern))
	return err == nil && len(found) > 0
}

// packageFiles are the Go files of every package but its tests, by folder. A folder with
// tests alone is listed with them.
func packageFiles(t *testing.T) map[string][]string {
	packages, tests := map[string][]string{}, map[string][]string{}
	walk(t, ".go", func(name string) {
		into := packages
		if strings.HasSuffix(name, "_test.go") {
			into = tests
		}
		into[path.Dir(name)] = append(into[path.Dir(name)], path.Base(name))
	})
	for folder, files := range tests {
		if packages[folder] == nil {
			packages[folder] = files
		}
	}
	return packages
}

// walk calls each with every file of the repository that ends so, by its path from the root.
func walk(t *testing.T, end string, each func(name string)) {
	err := filepath.WalkDir(repository, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && p != repository && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if !d.IsDir() && strings.HasSuffix(p, end) {
			name, err := filepath.Rel(repository, p)
			if err != nil {
				return err
			}
			each(filepath.ToSlash(name))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func packageComments(t *testing.T, folder string, files []string) (texts, where []string) {
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(repository, folder, name), nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		if f.Doc != nil {
			texts, where = append(texts, f.Doc.Text()), append(where, name)
		}
	}
	return texts, where
}

// Claim (docs/README.md): links of the pages lead somewhere, headings included, and folders
// and files that pages name are there, but for what is built.
func TestPagesNameWhatIsThere(t *testing.T) {
	links := 0
	walk(t, ".md", func(page string) {
		text := read(t, page)
		for _, link := range pageLinks.FindAllStringSubmatch(text, -1) {
			links++
			if wrong := deadLink(t, page, link[1]); wrong != "" {
				t.Errorf("%s: %s", page, wrong)
			}
		}
		for _, name := range quoted.FindAllStringSubmatch(text, -1) {
			if first, _, _ := strings.Cut(name[1], "/"); !slices.Contains(unwalked, first) && exists(first) && !exists(blanks.ReplaceAllString(name[1], "*")) {
				t.Errorf("%s names %s, which is not there", page, name[1])
			}
		}
	})
	if links < 30 {
		t.Errorf("found %d links; the reader is broken", links)
	}
}

// Claim (docs/cuda.md): a test that a page names is there.
func TestPagesNameExistingTests(t *testing.T) {
	there := map[string]bool{}
	walk(t, "_test.go", func(file string) {
		for _, f := range declaredTests.FindAllStringSubmatch(read(t, file), -1) {
			there[f[1]] = true
		}
	})
	named := 0
	walk(t, ".md", func(page string) {
		for _, name := range namedTests.FindAllStringSubmatch(read(t, page), -1) {
			named++
			if !there[name[1]] {
				t.Errorf("%s names %s, which is no test", page, name[1])
			}
		}
	})
	if named < 30 {
		t.Errorf("found %d tests named; the reader is broken", named)
	}
}

var (
	declaredTests = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	namedTests    = regexp.MustCompile("`(Test[A-Z]\\w*)`")
)

// unwalked are folders that are built, fetched, or outside of the repository.
var unwalked = []string{"bin", ".tools", ".."}

// pageLinks are Markdown's links; quoted are paths of folders and files in backquotes, in
// which blanks are to be filled in.
var (
	pageLinks = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	quoted    = regexp.MustCompile("`([\\w.-]+/[\\w./*-]+)`")
	blanks    = regexp.MustCompile(`\b(NAME|SUBJECT)\b`)
)

// deadLink is what is wrong with a link of a page; "" where it leads somewhere.
func deadLink(t *testing.T, page, link string) string {
	if strings.Contains(link, "://") {
		return ""
	}
	file, heading, _ := strings.Cut(link, "#")
	target := path.Join(path.Dir(page), file)
	if file == "" {
		target = page
	}
	if !exists(target) {
		return link + " leads nowhere"
	}
	if heading != "" && !slices.Contains(headings(read(t, target)), heading) {
		return link + ": the page has no such heading"
	}
	return ""
}

// headings are a page's, as links name them.
func headings(text string) (names []string) {
	for line := range strings.Lines(text) {
		if title, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && line[0] == '#' {
			name := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(title)), " ", "-")
			names = append(names, noWord.ReplaceAllString(name, ""))
		}
	}
	return names
}

var noWord = regexp.MustCompile(`[^\w-]`)

func read(t *testing.T, name string) string {
	data, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// Claim (docs/architecture.md, docs/README.md): the table of folders leaves none out, the
// list of pages neither.
func TestToursAreComplete(t *testing.T) {
	tour := read(t, "docs/architecture.md")
	for folder := range packageFiles(t) {
		parts := strings.Split(folder, "/")
		stop := strings.Join(parts[:min(2, len(parts))], "/")
		if folder == "." || slices.Contains(untoured, parts[0]) {
			continue
		}
		if !strings.Contains(tour, "`"+stop+"`") && !strings.Contains(tour, "`"+parts[0]+"`") {
			t.Errorf("docs/architecture.md leaves out %s", stop)
		}
	}
	index := read(t, "docs/README.md")
	walk(t, ".md", func(page string) {
		if name, ok := strings.CutPrefix(page, "docs/"); ok && name != "README.md" && !strings.Contains(index, "]("+name+")") {
			t.Errorf("docs/README.md leaves out %s", name)
		}
	})
}

// untoured are folders whose parts the tour does not name one by one.
var untoured = []string{"scripts"}

// TestRottenPagesAreCaught shows that the tests above can fail.
func TestRottenPagesAreCaught(t *testing.T) {
	for _, link := range []string{"nopage.md", "failures.md#no-such-heading", "#neither"} {
		if deadLink(t, "docs/README.md", link) == "" {
			t.Errorf("%s was let through", link)
		}
	}
	if wrong := deadLink(t, "docs/README.md", "failures.md#how-failures-are-detected"); wrong != "" {
		t.Error("a good link was refused: " + wrong)
	}
	if commentFaults(t, "mpu/health", []string{"flight.go"}) == nil {
		t.Error("a package without a comment was let through")
	}
}
