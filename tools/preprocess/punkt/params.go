package punkt

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
)

// Params is what Punkt has learnt about a language.
type Params struct {
	abbreviations map[string]bool
	collocations  map[[2]string]bool
	starters      map[string]bool
	context       map[string]int // how a word was seen: bits below
}

// Bits of Params.context: case of the first letter, by position in the sentence.
const (
	internalUpper = 1 << 2
	anyUpper      = 1<<1 | 1<<2 | 1<<3
	initialLower  = 1 << 4
	anyLower      = 1<<4 | 1<<5 | 1<<6
)

// Find reads the parameters of a language from a punkt_tab folder, searched
// where NLTK searches: the folders of NLTK_DATA, then the usual ones. English is
// built in for where there is none.
func Find(language string) (*Params, error) {
	if language == "" || strings.ContainsAny(language, "/\\.") {
		return nil, exitcode.Errorf(exitcode.Usage, "--lang %q is not the name of a language; give a name such as english", language)
	}
	var tried []string
	for _, dir := range dataFolders() {
		folder := filepath.Join(dir, "tokenizers", "punkt_tab", language)
		if _, err := os.Stat(folder); err == nil {
			return Load(folder)
		}
		tried = append(tried, folder)
	}
	if language == "english" {
		return builtInEnglish()
	}
	return nil, exitcode.Errorf(exitcode.NoInput, "Punkt parameters for %q are missing (searched: %s); set NLTK_DATA to a folder with tokenizers/punkt_tab/%s, as nltk.download('punkt_tab') creates it", language, strings.Join(tried, ", "), language)
}

func dataFolders() (dirs []string) {
	for _, d := range filepath.SplitList(os.Getenv("NLTK_DATA")) {
		if d != "" {
			dirs = append(dirs, d)
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		dirs = append(dirs, filepath.Join(home, "nltk_data"))
	}
	return append(dirs, "/usr/share/nltk_data", "/usr/local/share/nltk_data", "/usr/lib/nltk_data", "/usr/local/lib/nltk_data")
}

// maxFile bounds one of the four, in bytes; those of English have half a million.
const maxFile = 64 << 20

// Load reads the four files of a punkt_tab folder.
func Load(folder string) (*Params, error) {
	p := &Params{map[string]bool{}, map[[2]string]bool{}, map[string]bool{}, map[string]int{}}
	// A file for each kind of knowledge, a line an entry.
	for _, f := range []struct {
		name string
		line func(string) bool
	}{
		{"abbrev_types.txt", func(s string) bool { p.abbreviations[s] = true; return true }},
		{"sent_starters.txt", func(s string) bool { p.starters[s] = true; return true }},
		{"collocations.tab", func(s string) bool {
			a, b, ok := strings.Cut(s, "\t")
			p.collocations[[2]string{a, b}] = true
			return ok
		}},
		{"ortho_context.tab", func(s string) bool {
			word, bits, ok := strings.Cut(s, "\t")
			n, err := strconv.Atoi(bits)
			p.context[word] = n
			return ok && err == nil
		}},
	} {
		path := filepath.Join(folder, f.name)
		data, err := exitcode.ReadFile(path, maxFile)
		if err != nil {
			return nil, err
		}
		for n, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
			if line != "" && !f.line(line) {
				return nil, exitcode.Errorf(exitcode.BadData, "%s:%d: %.60q is not valid in a Punkt file", path, n+1, line)
			}
		}
	}
	return p, nil
}
