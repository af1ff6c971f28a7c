package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"monotron/fault"
)

// folder gets everything that is made here; it is ignored by git.
const folder = "quickstart"

var began = time.Now()

var seed = flag.Int("seed", 1234, "of the run: other initial weights and another order of the data")

func main() {
	flag.Parse()
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
	say("A small GPT is now trained from nothing on the sources of Go itself: its tokenizer, its data, and about two minutes")
	say("of training that is killed halfway and goes on without losing a bit. Then it writes some Go. In all about 4 minutes.")
	for _, part := range []struct {
		title string
		do    func() error
	}{
		{"What this machine has", examine},
		{"A corpus: the sources of the Go toolchain", makeCorpus},
		{"A tokenizer made for it", makeTokenizer},
		{"From text to tokens", tokenize},
		{"Training, a kill, and going on", trainAndKill},
		{"What the model writes", generate},
		{"The run as a page and as a picture", present},
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
	if corpusBytes, err = writeCorpus(root, paths, corpusFile, math.MaxInt64); err != nil {
		return err
	}
	say("%d files of %s, %.1f MB, one JSON object a line: %s", len(paths), root, float64(corpusBytes)/1e6, corpusFile)
	_, err = writeCorpus(root, paths, sampleFile, sampleBytes)
	return err
}

const (
	corpusFile = folder + "/go.jsonl"
	sampleFile = folder + "/sample.jsonl" // what the tokenizer is made from
	tokenizer  = folder + "/tokenizer"
	dataPrefix = folder + "/go"
	dataPath   = dataPrefix + "_text_document"
)

// sampleBytes of the corpus tell which words Go has; all of it would take ten times as long
// and find much the same.
const sampleBytes = 8 << 20

var (
	corpusBytes int64   // of text
	tokenBytes  float64 // of text, that a token stands for in the mean
)

var tokenizerFlags = []string{"--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", tokenizer}

func makeTokenizer() error {
	return show("bin/monotron", "train_tokenizer", "--input", sampleFile, "--output-dir", tokenizer, "--vocab-size", "4096", "--pattern", "llama3")
}

func tokenize() error {
	err := show("bin/preprocess_data", append([]string{"--input", corpusFile, "--output-prefix", dataPrefix, "--append-eod", "--workers", "2",
		"--log-interval", "2000"}, tokenizerFlags...)...)
	if err != nil {
		return err
	}
	st, err := os.Stat(dataPath + ".bin")
	if err != nil {
		return fault.With(fault.Internal, err)
	}
	tokens := st.Size() / 2 // 4,096 ids fit two bytes
	tokenBytes = float64(corpusBytes) / float64(tokens)
	say("A token stands for %.2f bytes of text in the mean.", tokenBytes)
	return nil
}

// present writes what is left to look at.
func present() error {
	if err := show("bin/monotron", "watch", "--terminal", folder); err != nil {
		return err
	}
	if err := show("bin/monotron", "report", folder, "--format", "png", "--output", pictureFile); err != nil {
		return err
	}
	if err := show("bin/monotron", "report", folder, "--output", reportFile); err != nil {
		return err
	}
	say("\nOpen %s in a browser: the whole run, with the kill in it; %s is its picture.", reportFile, pictureFile)
	return nil
}

const (
	reportFile  = folder + "/report.html"
	pictureFile = folder + "/loss.png"
)
