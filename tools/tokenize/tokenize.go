// Package tokenize is the command tokenize: texts to ids, or ids to text, a line
// each.
package tokenize

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"

	"monotron/dataset/jsonl"
	"monotron/internal/exitcode"
	"monotron/tokenizer"
	"monotron/tools/internal/command"
)

// Command is tokenize.
func Command() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "tokenize",
		Usage: "print the token ids of texts, one JSON array per line",
		Flags: append([]cli.Flag{
			&cli.StringSliceFlag{Name: "input", Value: cli.NewStringSlice("-"), Usage: "read these files, globs or folders, or - for standard input; gzip, zstd, bzip2, xz and lzma are decompressed"},
			&cli.StringFlag{Name: "json-key", Usage: "read the text of a JSON object from this key (default: if the file names show JSON lines, the key named text; otherwise each line is one text)"},
			&cli.BoolFlag{Name: "count", Usage: "print the number of ids instead of the ids"},
			&cli.BoolFlag{Name: "decode", Usage: "read lines of JSON arrays of ids and print their text as JSON strings"},
			command.Between(1, command.Threads, &cli.IntFlag{Name: "workers", Value: runtime.NumCPU(), Usage: "use N goroutines; the output does not depend on N"}),
		}, command.TokenizerFlags()...),
		Action: func(c *cli.Context) error {
			if err := command.NoArgs(c); err != nil {
				return err
			}
			if c.Bool("decode") && (c.Bool("count") || c.String("json-key") != "") {
				return exitcode.Errorf(exitcode.Usage, "--decode cannot be combined with --count or --json-key; leave one out")
			}
			// The tokenizer, the files, and the key of the text in JSON lines.
			tok, err := command.Tokenizer(c)
			if err != nil {
				return err
			}
			inputs, err := command.EachInput(c.StringSlice("input"), "", command.Note(c))
			if err != nil {
				return err
			}
			for _, in := range inputs {
				if in.Kind == command.Tokens {
					return exitcode.Errorf(exitcode.Usage, "--input: the name of %s shows that it contains tokens; use monotron inspect dataset to show them", in.Path)
				}
			}
			// One line of output for each text, in order.
			for _, in := range inputs {
				key := c.String("json-key")
				if key == "" && in.Kind == command.JSONLines && !c.Bool("decode") {
					key = "text"
				}
				if err := run(c, tok, in.Path, key); err != nil {
					return err
				}
			}
			return nil
		},
	})
}

// blockBytes is small, so that lines typed by hand are answered in good time and
// many workers share a small file.
const blockBytes = 1 << 16

// answer is the output for one block.
type answer struct {
	out []byte
	err error
}

// run sends the blocks of a file through the workers and prints the answers in order.
func run(c *cli.Context, tok tokenizer.Tokenizer, file, key string) error {
	r, err := jsonl.Open(file, blockBytes)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(c.App.Writer)
	order := make(chan chan answer, 2*c.Int("workers"))
	stop := make(chan struct{})
	var readErr error
	var wait sync.WaitGroup
	// Blocks are read in order; each has a channel for its answer, and so many are encoded at once.
	wait.Go(func() {
		defer close(order)
		limit := make(chan struct{}, c.Int("workers"))
		for {
			var b jsonl.Block
			if b, readErr = r.Next(nil); readErr != nil {
				return
			}
			out := make(chan answer, 1)
			select {
			case order <- out:
			case <-stop:
				return
			}
			limit <- struct{}{}
			wait.Go(func() {
				out <- encode(c, tok, b, key)
				<-limit
			})
		}
	})
	// Answers in the order of the blocks; the first error ends it.
	for out := range order {
		a := <-out
		if _, werr := w.Write(a.out); err == nil {
			err = exitcode.With(exitcode.IO, werr)
		}
		if a.err != nil {
			err = a.err
		}
		if err != nil {
			break
		}
	}
	close(stop)
	wait.Wait()
	if err == nil && readErr != io.EOF {
		err = readErr
	}
	return errors.Join(err, exitcode.With(exitcode.IO, w.Flush()), r.Close())
}

// encode answers every line of a block, up to the first that is wrong.
func encode(c *cli.Context, tok tokenizer.Tokenizer, b jsonl.Block, key string) (a answer) {
	l := liner{tok: tok, count: c.Bool("count")}
	one := l.text
	switch {
	case c.Bool("decode"):
		one = l.decode
	case key != "":
		l.parser = jsonl.NewParser(key)
		l.parser.Flag = "json-key"
		one = l.object
	}
	for n, line := range b.Each() {
		if a.out, a.err = one(a.out, line); a.err != nil {
			a.err = exitcode.Errorf(exitcode.BadData, "%s:%d: %w", b.Name, n, a.err)
			return a
		}
		a.out = append(a.out, '\n')
	}
	return a
}

// liner turns one line into its output.
type liner struct {
	tok    tokenizer.Tokenizer
	count  bool
	parser *jsonl.Parser
	ids    []int32
}

func (l *liner) text(out, line []byte) ([]byte, error) { return l.texts(out, string(line)) }

func (l *liner) object(out, line []byte) ([]byte, error) {
	if err := l.parser.Parse(line); err != nil {
		return out, err
	}
	pieces, err := l.parser.Strings(0)
	if err != nil {
		return out, err
	}
	return l.texts(out, pieces...)
}

// texts prints the ids of all pieces together.
func (l *liner) texts(out []byte, pieces ...string) ([]byte, error) {
	l.ids = l.ids[:0]
	for _, p := range pieces {
		var err error
		if l.ids, err = l.tok.Append(l.ids, p); err != nil {
			return out, err
		}
	}
	if l.count {
		return strconv.AppendInt(out, int64(len(l.ids)), 10), nil
	}
	out = append(out, '[')
	for i, id := range l.ids {
		if i > 0 {
			out = append(out, ", "...)
		}
		out = strconv.AppendInt(out, int64(id), 10)
	}
	return append(out, ']'), nil
}

func (l *liner) decode(out, line []byte) ([]byte, error) {
	var ids []int32
	if err := json.Unmarshal(line, &ids); err != nil {
		return out, exitcode.Errorf(exitcode.BadData, "the line is not a JSON array of ids: %w", err)
	}
	for i, id := range ids {
		if id < 0 || int(id) >= l.tok.VocabSize() {
			return out, exitcode.Errorf(exitcode.BadData, "id %d at position %d is outside the vocabulary of %d ids", id, i, l.tok.VocabSize())
		}
	}
	var quoted strings.Builder
	e := json.NewEncoder(&quoted)
	e.SetEscapeHTML(false)
	if err := e.Encode(l.tok.Decode(ids)); err != nil {
		return out, err
	}
	return append(out, strings.TrimSuffix(quoted.String(), "\n")...), nil
}
