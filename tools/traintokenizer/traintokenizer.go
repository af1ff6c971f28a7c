// Package traintokenizer is the command train_tokenizer: a byte-level BPE from
// text, so that a user with nothing but text can start.
package traintokenizer

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"monotron/dataset/jsonl"
	"monotron/internal/argv"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/tokenizer"
	"monotron/tokenizer/bpe"
	"monotron/tokenizer/train"
	"monotron/tools/internal/command"
)

var patterns = map[string]bpe.Pattern{"gpt2": bpe.GPT2, "llama3": bpe.Llama3, "qwen2": bpe.Qwen2, "o200k": bpe.O200K}

// Command is train_tokenizer.
func Command() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "train_tokenizer",
		Usage: "train a byte-level BPE tokenizer on text: vocab.json, merges.txt, tokenizer.json",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "input", Usage: "read these files, globs or folders, or - for standard input; gzip, zstd, bzip2, xz and lzma are decompressed"},
			&cli.StringFlag{Name: "input-format", Usage: "set the format of all inputs: jsonl or text (default: by the name of each: .jsonl and .json are JSON lines, others text)"},
			&cli.StringSliceFlag{Name: "json-keys", Usage: "read the text of a JSON line from these keys (default: text)"},
			&cli.StringFlag{Name: "output-dir", Usage: "write the files to this folder, which is created"},
			command.Between(0, command.Sizes, &cli.IntFlag{Name: "vocab-size", Usage: "make a vocabulary of N ids, including the 256 bytes and the special tokens"}),
			command.Between(0, command.Counts, &cli.Int64Flag{Name: "min-frequency", Usage: "merge only pairs that occur at least N times"}),
			&cli.StringSliceFlag{Name: "special-tokens", Usage: "add special tokens, which get the first ids; the first one ends a document (default: <|endoftext|>)"},
			&cli.StringFlag{Name: "pattern", Value: "gpt2", Usage: "split text into words by this pattern: gpt2, llama3, qwen2 or o200k"},
			command.Between(1, command.Threads, &cli.IntFlag{Name: "workers", Value: runtime.NumCPU(), Usage: "count words with N goroutines; the output does not depend on N"}),
		},
		Action: run,
	})
}

func run(c *cli.Context) error {
	if err := command.NoArgs(c); err != nil {
		return err
	}
	pattern, ok := patterns[c.String("pattern")]
	switch {
	case len(c.StringSlice("input")) == 0 || c.String("output-dir") == "":
		return exitcode.Errorf(exitcode.Usage, "--input or --output-dir is missing; give both")
	case !ok:
		return argv.WrongChoice("pattern", c.String("pattern"), "gpt2", "llama3", "qwen2", "o200k")
	case !slices.Contains([]string{"", "jsonl", "text"}, c.String("input-format")):
		return argv.WrongChoice("input-format", c.String("input-format"), "jsonl", "text")
	}
	// Special tokens and inputs.
	special := c.StringSlice("special-tokens")
	if !c.IsSet("special-tokens") {
		special = []string{"<|endoftext|>"}
	}
	inputs, err := command.EachInput(c.StringSlice("input"), c.String("input-format"), command.Note(c))
	if err != nil {
		return err
	}
	if err := check(inputs, c.String("output-dir")); err != nil {
		return err
	}
	// Words are counted, then pairs merged.
	counts, err := count(c, pattern, inputs)
	if err != nil {
		return err
	}
	result, err := train.Words(counts, train.Config{VocabSize: c.Int("vocab-size"), MinFrequency: c.Int64("min-frequency"), Special: special})
	if err != nil {
		return err
	}
	if len(result.Tokens) < c.Int("vocab-size") {
		fmt.Fprintf(c.App.ErrWriter, "no pairs are left to merge, so the vocabulary has %d ids instead of %d\n", len(result.Tokens), c.Int("vocab-size"))
	}
	end := ""
	if len(special) > 0 {
		end = special[0]
	}
	return write(c, result.Files(pattern.Expression(), special, end), len(result.Tokens))
}

// check refuses inputs that hold no text, and those that the files of the tokenizer would replace.
func check(inputs []command.Input, dir string) error {
	var paths, made []string
	for _, in := range inputs {
		if in.Kind == command.Tokens {
			return exitcode.Errorf(exitcode.Usage, "--input: the name of %s shows that it contains tokens, but a tokenizer is trained on text or JSON lines; give such files", in.Path)
		}
		paths = append(paths, in.Path)
	}
	for _, name := range train.FileNames {
		made = append(made, filepath.Join(dir, name))
	}
	return command.Apart("output-dir", made, paths)
}

func write(c *cli.Context, files map[string][]byte, size int) error {
	dir := c.String("output-dir")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return exitcode.Errorf(exitcode.IO, "--output-dir: %w", err)
	}
	if err := atomicfile.WriteFiles(dir, 0o666, files); err != nil {
		return err
	}
	_, err := fmt.Fprintf(c.App.Writer, "%s: %d ids\n", filepath.Join(dir, "tokenizer.json"), size)
	return exitcode.With(exitcode.IO, err)
}

// blockBytes is what one goroutine counts at a time.
const blockBytes = 1 << 20

// block is a part of an input.
type block struct {
	jsonl.Block
	objects bool // lines are JSON
}

// count sends the blocks of all inputs through the workers.
func count(c *cli.Context, p bpe.Pattern, inputs []command.Input) (map[string]int64, error) {
	blocks := make(chan block, c.Int("workers"))
	counters := make([]*train.Counter, c.Int("workers"))
	failed := make([]error, len(counters))
	var wait sync.WaitGroup
	// A counter for each worker, which are joined at the end.
	for i := range counters {
		counters[i] = train.NewCounter(p)
		wait.Go(func() {
			for b := range blocks {
				if failed[i] == nil {
					failed[i] = countBlock(counters[i], b, keys(c))
				}
			}
		})
	}
	err := read(inputs, blocks)
	close(blocks)
	wait.Wait()
	for i, counter := range counters {
		if err == nil {
			err = failed[i]
		}
		if i > 0 {
			counters[0].Join(counter)
		}
	}
	return counters[0].Counts, err
}

func read(inputs []command.Input, to chan<- block) error {
	for _, in := range inputs {
		r, err := jsonl.Open(in.Path, blockBytes)
		if err != nil {
			return err
		}
		for {
			b, err := r.Next(nil)
			if err == io.EOF {
				break
			}
			if err != nil {
				return err
			}
			to <- block{b, in.Kind == command.JSONLines}
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	return nil
}

func keys(c *cli.Context) []string {
	if list := c.StringSlice("json-keys"); len(list) > 0 {
		return list
	}
	return []string{"text"}
}

// countBlock counts a block: each line of text with its end, or each string
// under the keys of each JSON line.
func countBlock(counter *train.Counter, b block, keys []string) error {
	// A line at a time,
	if !b.objects {
		n := b.Line
		for line := range bytes.Lines(b.Data) {
			if !utf8.Valid(line) {
				return exitcode.Errorf(exitcode.BadData, "%s:%d: the line is not UTF-8; %s", b.Name, n, tokenizer.Latin1)
			}
			counter.Add(string(line))
			n++
		}
		return nil
	}
	// or the texts of each object.
	parser := jsonl.NewParser(keys...)
	for n, line := range b.Each() {
		if err := parser.Parse(line); err != nil {
			return exitcode.Errorf(exitcode.BadData, "%s:%d: %w", b.Name, n, err)
		}
		for k := range keys {
			texts, err := parser.Strings(k)
			if err != nil {
				return exitcode.Errorf(exitcode.BadData, "%s:%d: %w", b.Name, n, err)
			}
			for _, text := range texts {
				counter.Add(text)
			}
		}
	}
	return nil
}
