package main

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"monotron/fault"
	"monotron/whole"
)

// largestSource leaves out long tables, which teach nothing.
const largestSource = 128 << 10 // bytes

// byMachine matches what Go's generators begin with: https://go.dev/s/generatedcode.
var byMachine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// generated tells whether a program wrote the file, as its first lines then say.
func generated(path string) (bool, error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	head := make([]byte, 2<<10)
	n, err := io.ReadFull(file, head)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return byMachine.Match(head[:n]), err
}

// corpusLine is one document of the corpus: a source file.
type corpusLine struct {
	Text string `json:"text"`
	Path string `json:"path"`
}

// goSources is the src folder of the Go toolchain in use.
func goSources() (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fault.Errorf(fault.NoInput, "asking `go env GOROOT` for the toolchain's sources: %w", err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "src"), nil
}

// listSources finds the Go files under root, in the order of their paths'
// hashes: fixed, and no folder ends up whole in the validation split.
func listSources(root string) (paths []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "testdata" {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() || filepath.Ext(path) != ".go" {
			return nil
		}
		info, err := d.Info()
		if err != nil || info.Size() > largestSource {
			return err
		}
		if made, err := generated(path); made || err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		paths = append(paths, filepath.ToSlash(rel))
		return err
	})
	if err != nil {
		return nil, fault.Errorf(fault.NoInput, "reading the Go sources: %w", err)
	}
	if len(paths) == 0 {
		return nil, fault.Errorf(fault.NoInput, "%s holds no .go files; this Go toolchain came without its sources", root)
	}
	slices.SortFunc(paths, func(a, b string) int {
		x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
		return cmp.Or(bytes.Compare(x[:], y[:]), cmp.Compare(a, b))
	})
	return paths, nil
}

// writeCorpus writes one JSON object a file to out, until they have `most` bytes of text,
// and returns how many those are.
func writeCorpus(root string, paths []string, out string, most int64) (text int64, err error) {
	err = whole.Write(out, 0o666, func(file *os.File) error {
		buffered := bufio.NewWriterSize(file, 1<<20)
		text, err = encodeCorpus(buffered, root, paths, most)
		return errors.Join(err, buffered.Flush())
	})
	return text, err
}

func encodeCorpus(to io.Writer, root string, paths []string, most int64) (text int64, err error) {
	lines := json.NewEncoder(to)
	lines.SetEscapeHTML(false)
	for _, path := range paths {
		if text >= most {
			break
		}
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			return 0, fault.With(fault.NoInput, err)
		}
		if err := lines.Encode(corpusLine{string(source), path}); err != nil {
			return 0, fault.With(fault.IO, err)
		}
		text += int64(len(source))
	}
	return text, nil
}
