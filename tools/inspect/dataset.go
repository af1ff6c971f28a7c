package inspect

import (
	"bufio"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/dataset"
	"monotron/internal/exitcode"
	"monotron/tokenizer"
	"monotron/tools/internal/command"
)

// Dataset is the subcommand `inspect dataset PREFIX`.
func Dataset() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:      "dataset",
		Usage:     "check a .bin/.idx pair and describe its contents",
		ArgsUsage: "PREFIX (of a .bin/.idx pair, or the .bin file of llm.c or nanoGPT)",
		Flags: append([]cli.Flag{
			command.Between(-1, command.Counts, &cli.Int64Flag{Name: "document", Value: -1, Usage: "print the ids of this document, and its text if a tokenizer is given (-1 prints no document)"}),
			&cli.BoolFlag{Name: "check-ids", Usage: "read every token and report ids outside the vocabulary of the named tokenizer"},
		}, command.TokenizerFlags()...),
		Action: runDataset,
	})
}

func runDataset(c *cli.Context) (err error) {
	if c.NArg() != 1 {
		return exitcode.Errorf(exitcode.Usage, "inspect dataset needs one PREFIX (the path without .bin and .idx), but has %d arguments", c.NArg())
	}
	var tok tokenizer.Tokenizer
	if c.IsSet("tokenizer-type") {
		if tok, err = command.Tokenizer(c); err != nil {
			return err
		}
	}
	if c.Bool("check-ids") && tok == nil {
		return exitcode.Errorf(exitcode.Usage, "--check-ids needs --tokenizer-type, the tokenizer whose vocabulary the ids are compared with")
	}
	x, err := openTokens(c.Args().First(), tok)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	return dataset.Guard(x.Prefix(), func() error { return show(c, x, tok) })
}

func show(c *cli.Context, x *dataset.Indexed, tok tokenizer.Tokenizer) (err error) {
	w := bufio.NewWriter(c.App.Writer)
	p := &command.Printer{W: w}
	if n := c.Int64("document"); n >= 0 {
		err = document(p, x, tok, n)
	} else {
		summary(p, x)
	}
	if err == nil && c.Bool("check-ids") {
		err = checkIDs(p, x, tok)
	}
	return errors.Join(err, p.Err, exitcode.With(exitcode.IO, w.Flush()))
}

// openTokens opens a pair by its prefix or the name of one of its files, or else a
// lone .bin, whose documents end with the tokenizer's end-of-document id.
func openTokens(path string, tok tokenizer.Tokenizer) (*dataset.Indexed, error) {
	prefix := strings.TrimSuffix(strings.TrimSuffix(path, ".idx"), ".bin")
	if _, err := os.Stat(prefix + ".idx"); err == nil || prefix == path {
		return dataset.Open(prefix)
	}
	eod := int32(-1)
	if tok != nil {
		eod = int32(tok.EOD())
	}
	return dataset.OpenTokens(path, eod)
}

// summary prints counts and the lengths of sequences in powers of two. That the
// index holds together was checked when it was opened.
func summary(p *command.Printer, x *dataset.Indexed) {
	p.Printf("prefix     %s\nformat     %s\ndtype      %s\ndocuments  %d\nsequences  %d\ntokens     %d\n", x.Prefix(), x.Kind(), x.DType(), x.Documents(), x.Len(), x.Tokens())
	if s, ok, err := dataset.ReadSidecar(x.Prefix()); ok && err == nil {
		p.Printf("made with  %s, %d ids, end of document %d (appended: %v), %s; %d bad lines were left out\n", s.Tokenizer, s.VocabSize, s.EOD, s.AppendEOD, s.TokenizerHash, s.BadLines)
	}
	if x.Len() == 0 {
		return
	}
	var counts [33]int64
	shortest := x.Size(0)
	for i := int64(0); i < x.Len(); i++ {
		n := x.Size(i)
		counts[bits.Len64(uint64(n))]++
		shortest = min(shortest, n)
	}
	p.Printf("lengths    %d to %d, mean %.1f\n", shortest, x.Longest(), float64(x.Tokens())/float64(x.Len()))
	for b, n := range counts {
		if n > 0 {
			p.Printf("%11d to %-11d %9d  %5.1f%%\n", int64(1)<<b>>1, max(0, int64(1)<<b-1), n, 100*float64(n)/float64(x.Len()))
		}
	}
	p.Printf("index      offsets, lengths and boundaries are consistent\n")
}

// document prints the sequences of one document.
func document(p *command.Printer, x *dataset.Indexed, tok tokenizer.Tokenizer, n int64) error {
	if n >= x.Documents() {
		return exitcode.Errorf(exitcode.Usage, "--document %d is out of range: %s has %d documents, numbered from 0", n, x.Prefix(), x.Documents())
	}
	first, end := x.Document(n)
	p.Printf("document %d: sequences %d to %d\n", n, first, end)
	for i := first; i < end; i++ {
		ids, err := x.Sequence(i)
		if err != nil {
			return err
		}
		p.Printf("sequence %d: %d tokens %s\n", i, len(ids), strings.ReplaceAll(fmt.Sprint(ids), " ", ", "))
		if tok != nil {
			p.Printf("%s\n", tok.Decode(ids))
		}
	}
	return nil
}

// checkIDs reads the complete file and counts ids the tokenizer does not have.
func checkIDs(p *command.Printer, x *dataset.Indexed, tok tokenizer.Tokenizer) error {
	outside, where, top := int64(0), "", int32(-1)
	var ids []int32
	for i := int64(0); i < x.Len(); i++ {
		var err error
		if ids, err = x.Slice(i, 0, x.Size(i), ids[:0]); err != nil {
			return err
		}
		for at, id := range ids {
			top = max(top, id)
			if id < 0 || int(id) >= tok.VocabSize() {
				if outside == 0 {
					where = fmt.Sprintf("%s is the first, id %d", x.Where(i, int64(at)), id)
				}
				outside++
			}
		}
	}
	p.Printf("largest id %d, vocabulary %d\n", top, tok.VocabSize())
	if outside > 0 {
		return exitcode.Errorf(exitcode.BadData, "%s: %d tokens are outside the vocabulary of %d ids: %s", x.Prefix(), outside, tok.VocabSize(), where)
	}
	return nil
}
