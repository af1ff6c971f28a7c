package command

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"monotron/internal/exitcode"
)

// Formats of the files that --input names.
const (
	JSONLines = "jsonl"
	Text      = "text"
	Tokens    = "tokens" // .bin/.idx pairs, by prefix or name, and other programs' .bin
)

// kinds are the ends of names that say what a file holds, under any ends of compression.
var kinds = map[string]string{
	".jsonl": JSONLines, ".ndjson": JSONLines, ".json": JSONLines, ".parquet": JSONLines, ".tar": JSONLines, ".tgz": JSONLines, ".mds": JSONLines,
	".txt": Text, ".text": Text, ".md": Text, ".rst": Text,
	".bin": Tokens, ".idx": Tokens,
}

var compressed = []string{".gz", ".zst", ".zstd", ".bz2", ".xz", ".lzma"}

// KindOf is what a file's name says that it holds; "": nothing.
func KindOf(name string) string {
	for slices.Contains(compressed, filepath.Ext(name)) {
		name = strings.TrimSuffix(name, filepath.Ext(name))
	}
	return kinds[strings.ToLower(filepath.Ext(name))]
}

// Inputs turns what --input names, files, globs, folders, prefixes of pairs and - for standard
// input, into files in the order given, those of a glob or folder by name. kind is what they
// hold: format where that is given, else what all names that say something agree on; "" where
// none does. note gets a line for each folder of which files are left out.
func Inputs(words []string, format string, note func(format string, args ...any)) (files []string, kind string, err error) {
	if files, err = allInputs(words, format, note); err != nil || format != "" {
		return files, format, err
	}
	first, kind, other := kindsIn(files)
	if other != "" {
		return nil, "", exitcode.Errorf(exitcode.Usage, "--input: the names show that %s contains %s, but %s contains %s; give --input-format, or run the command once for each kind", first, kind, other, KindOf(other))
	}
	return files, kind, nil
}

// Input is a file and what it holds.
type Input struct{ Path, Kind string }

// EachInput is Inputs for commands that read each file by what its own name says.
func EachInput(words []string, format string, note func(format string, args ...any)) (list []Input, err error) {
	files, err := allInputs(words, format, note)
	if err != nil {
		return nil, err
	}
	_, kind, other := kindsIn(files)
	for _, f := range files {
		own := cmp.Or(format, KindOf(f), kind)
		if format == "" && other != "" && KindOf(f) == "" {
			return nil, exitcode.Errorf(exitcode.Usage, "--input: the name of %s does not show whether the file contains text or JSON lines, and the other inputs contain both; give the file a name that ends in .txt or .jsonl", f)
		}
		list = append(list, Input{f, own})
	}
	return list, nil
}

// allInputs are the files of all words.
func allInputs(words []string, format string, note func(format string, args ...any)) (files []string, err error) {
	for _, word := range words {
		found, left, err := input(word, format)
		if err != nil {
			return nil, err
		}
		if text := leftText(left); text != "" {
			note("--input %s: %s; to read such a file as well, name it", word, text)
		}
		files = append(files, found...)
	}
	return files, nil
}

// kindsIn is the first file whose name says what it holds, what that is, and the first that holds something
// other; "": none.
func kindsIn(files []string) (first, kind, other string) {
	for _, f := range files {
		switch k := KindOf(f); {
		case k == "":
		case kind == "":
			first, kind = f, k
		case k != kind:
			return first, kind, f
		}
	}
	return first, kind, ""
}

// leftText says how many files of a folder are left out, and of which suffixes.
func leftText(left map[string]int) string {
	total := 0
	var kinds []string
	for suffix, n := range left {
		total += n
		kinds = append(kinds, fmt.Sprintf("%d %s", n, cmp.Or(suffix, "without a suffix")))
	}
	if total == 0 {
		return ""
	}
	slices.Sort(kinds)
	if more := len(kinds) - 8; more > 0 {
		kinds = append(kinds[:8], fmt.Sprintf("%d further suffixes", more))
	}
	verb := "files are left out, because their names do not show that they contain text or JSON lines"
	if total == 1 {
		verb = "file is left out, because its name does not show that it contains text or JSON lines"
	}
	return fmt.Sprintf("%d %s (%s)", total, verb, strings.Join(kinds, ", "))
}

// input is the files of one word, and how many of a folder are left out, by their suffix.
func input(word, format string) (files []string, left map[string]int, err error) {
	pair := func(path string) bool { // a folder of a pair's name may hold its cache
		_, err := os.Stat(path + ".idx")
		return err == nil && (format == Tokens || format == "")
	}
	info, err := os.Stat(word)
	switch {
	case word == "-" || pair(word) && (err != nil || format == Tokens):
		return []string{word}, nil, nil
	case err == nil && info.IsDir():
		return folder(word, format)
	case err == nil:
		return []string{word}, nil, nil
	}
	found, err := filepath.Glob(word)
	switch {
	case err != nil:
		return nil, nil, exitcode.Errorf(exitcode.Usage, "--input %s: %w", word, err)
	case len(found) == 0:
		return nil, nil, exitcode.Errorf(exitcode.NoInput, "--input %s: the file does not exist", word)
	}
	for _, f := range found {
		if info, err := os.Stat(f); err == nil && info.IsDir() && !pair(f) {
			return nil, nil, exitcode.Errorf(exitcode.NoInput, "--input %s: %s is a folder; give either one folder or only files", word, f)
		}
	}
	return found, nil, nil
}

// folder is the files below a folder, by name; hidden ones are left out and, without a format,
// those whose names do not say that they hold text, which are counted by their suffix.
func folder(dir, format string) (files []string, left map[string]int, err error) {
	left = map[string]int{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case strings.HasPrefix(d.Name(), ".") && path != dir:
			if d.IsDir() {
				return filepath.SkipDir
			}
			return nil
		case d.IsDir() || !d.Type().IsRegular():
			return nil
		case d.Name() == "index.json" && nextToShards(path): // which says what each shard says itself
			return nil
		}
		take := format == Text || format == JSONLines // whatever the names
		switch k := KindOf(path); format {
		case "":
			take = k == Text || k == JSONLines
		case Tokens:
			take = k == Tokens && filepath.Ext(path) == ".bin" // its index is found by it
		}
		if take {
			files = append(files, path)
		} else if format == "" {
			left[filepath.Ext(path)]++
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, nil, exitcode.Errorf(exitcode.IO, "--input %s: %w", dir, err)
	case len(files) == 0:
		return nil, nil, exitcode.Errorf(exitcode.NoInput, "--input %s: the folder has no file whose name shows that it contains %s; name its files, such as %s", dir, kindsOr(format), filepath.Join(dir, "*"))
	}
	return files, left, nil
}

func kindsOr(format string) string {
	if format == "" {
		return "text (.txt, .md) or JSON lines (.jsonl, .json)"
	}
	return format
}

// nextToShards reports whether a file lies next to shards of MosaicML's streaming.
func nextToShards(path string) bool {
	shards, err := filepath.Glob(filepath.Join(globless(filepath.Dir(path)), "*.mds*"))
	return err == nil && len(shards) > 0
}

// globless is a path whose characters stand for themselves in a pattern.
func globless(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
