package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"monotron/fault"
)

// folder gets everything that is made here; it is ignored by git.
const folder = "quickstart"

var began = time.Now()

func main() {
	if err := story(); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(int(fault.CodeOf(err)))
	}
}

func story() error {
	if _, err := os.Stat("bin/monotron"); err != nil {
		return fault.Errorf(fault.NoInput, "bin/monotron is missing; run `make build` first, and this from the repository's folder")
	}
	if err := fresh(folder); err != nil {
		return err
	}
	for _, part := range []struct {
		title string
		do    func() error
	}{
		{"What this machine has", examine},
		{"A corpus: the sources of the Go toolchain", makeCorpus},
		{"From text to tokens", tokenize},
		{"Training, a kill, and going on", trainAndKill},
		{"What the model writes", generate},
		{"The loss", picture},
	} {
		say("\n== %s", part.title)
		if err := part.do(); err != nil {
			return err
		}
	}
	say("\nDone in %.0f s. All of it is in %s/; README.md says where to go from here.", time.Since(began).Seconds(), folder)
	return nil
}

// fresh empties the folder; only one that an earlier quickstart made.
func fresh(folder string) error {
	mark := filepath.Join(folder, ".made-by-quickstart")
	if _, err := os.Stat(folder); err == nil {
		if _, err := os.Stat(mark); err != nil {
			return fault.Errorf(fault.Usage, "the folder %s exists and was not made by quickstart; move it away", folder)
		}
		if err := os.RemoveAll(folder); err != nil {
			return fault.With(fault.IO, err)
		}
	}
	if err := os.MkdirAll(folder, 0o777); err != nil {
		return fault.With(fault.IO, err)
	}
	return fault.With(fault.IO, os.WriteFile(mark, nil, 0o666))
}

func say(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func examine() error { return show("bin/monotron", "doctor") }

func makeCorpus() error {
	root, err := goSources()
	if err != nil {
		return err
	}
	paths, err := listSources(root)
	if err != nil {
		return err
	}
	bytes, err := writeCorpus(root, paths, corpusFile)
	if err != nil {
		return err
	}
	say("%d files of %s, %.1f MB, one JSON object a line: %s", len(paths), root, float64(bytes)/1e6, corpusFile)
	return nil
}

const (
	corpusFile = folder + "/go.jsonl"
	dataPrefix = folder + "/go"
	dataPath   = dataPrefix + "_text_document"
)

func tokenize() error {
	return show("bin/preprocess_data", "--input", corpusFile, "--output-prefix", dataPrefix,
		"--tokenizer-type", "GPT2BPETokenizer", "--append-eod", "--workers", "2", "--log-interval", "2000")
}
