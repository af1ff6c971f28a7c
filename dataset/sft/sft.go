package sft

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"

	"monotron/dataset/jsonl"
	"monotron/internal/exitcode"
	"monotron/tokenizer"
	"monotron/tokenizer/chat"
)

// Ways to make samples of documents.
const (
	PackNone     = "none"      // one document a sample, padded
	PackBFD      = "bfd"       // best fit decreasing; longer documents are truncated
	PackBFDSplit = "bfd_split" // best fit decreasing; longer documents are cut in pieces
	PackInOrder  = "in_order"  // in the order of the file; a document that does not fit opens the next sample
)

// Config says how rows become samples.
type Config struct {
	Length       int    // tokens of a sample, at least 2
	Packing      string // PackNone where empty
	LearnPrompts bool   // the loss learns every token, not the answers alone
	Shuffle      bool   // a new order of samples each epoch
	Seed         uint64 // of that order
	Template     *chat.Template
	EOS          string // what ends a text without a template; "": EndID
	EndID        int32  // token that ends it where EOS is ""; negative: none

	Rule         Rule  // of preference data
	BOSID, EOSID int32 // tokens that RuleORPO puts around a text; negative: none
	Block        int   // rows of RuleKTO among which answers are mismatched: a global batch
}

// Document is a row as tokens.
type Document struct {
	IDs    []int32
	Learn  [][2]int // tokens [from, to) that the loss learns, ascending
	Line   int64    // of the file
	Turns  []Turn   // of a conversation; nil: the row is none
	Cut    int      // tokens that truncation took
	Length int      // tokens before truncation
}

// Turn is the part of a conversation's tokens, from At on, that belongs to a message.
type Turn struct {
	At   int
	Role string
}

// Learned counts the tokens whose prediction the loss learns: the first token of a document is
// never predicted.
func (d *Document) Learned() (n int) {
	for _, s := range d.Learn {
		n += max(0, s[1]-max(1, s[0]))
	}
	return n
}

// Last is the last learned token, as a list; empty where nothing is learned.
func (d *Document) Last() []int32 {
	if len(d.Learn) == 0 {
		return nil
	}
	end := d.Learn[len(d.Learn)-1][1]
	return d.IDs[end-1 : end]
}

// Counts tells what became of the rows of a file.
type Counts struct {
	Rows      int // that were read
	Dropped   int // without a learned token
	Truncated int
	Tokens    int // that are kept
	Learned   int
}

// Load reads the documents of a JSON-lines file, in its order. A row that cannot be used is
// exitcode.BadData and names the file, the line and the field.
func Load(path string, tok tokenizer.Tokenizer, c Config) (docs []Document, counts Counts, err error) {
	all, err := Read(path, tok, c)
	if err != nil {
		return nil, counts, err
	}
	for _, d := range all {
		counts.Rows++
		if d.Cut > 0 {
			counts.Truncated++
		}
		if d.Learned() == 0 {
			counts.Dropped++
			continue
		}
		counts.Tokens, counts.Learned = counts.Tokens+len(d.IDs), counts.Learned+d.Learned()
		docs = append(docs, d)
	}
	if len(docs) == 0 {
		return nil, counts, exitcode.Errorf(exitcode.BadData, "%s: none of its %d rows has a token to learn within %d tokens; raise --seq-length or check the rows with `monotron inspect samples --labels`", path, counts.Rows, c.Length)
	}
	return docs, counts, nil
}

// Read is Load with the rows that have nothing to learn.
func Read(path string, tok tokenizer.Tokenizer, c Config) (docs []Document, err error) {
	render := &renderer{tok: tok, config: c}
	err = eachLine(path, render.document, func(line int64, d Document) error {
		d.Line = line
		docs = append(docs, d)
		return nil
	})
	return docs, err
}

// eachLine gives the lines of a file that are not blank to make, which several goroutines call,
// and what it made of them to take, in order. The first wrong line is the error.
func eachLine[T any](path string, make func(text []byte) (T, error), take func(line int64, made T) error) (err error) {
	r, err := jsonl.Open(path, 1<<20)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		block, err := r.Next(nil)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		for _, l := range linesOf(block, make) {
			if l.err != nil {
				return exitcode.With(exitcode.BadData, fmt.Errorf("%s:%d: %w", block.Name, l.number, l.err))
			}
			if err := take(l.number, l.made); err != nil {
				return err
			}
		}
	}
}

// line is one row of a block.
type line[T any] struct {
	number int64
	text   []byte
	made   T
	err    error
}

// linesOf makes something of each line of a block by several goroutines.
func linesOf[T any](b jsonl.Block, make func(text []byte) (T, error)) (lines []line[T]) {
	for n, text := range b.Each() {
		if !blank(text) {
			lines = append(lines, line[T]{number: n, text: text})
		}
	}
	var wait sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wait.Go(func() {
			for i := w; i < len(lines); i += workers {
				l := &lines[i]
				l.made, l.err = make(l.text)
			}
		})
	}
	wait.Wait()
	return lines
}

func blank(text []byte) bool {
	for _, c := range text {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}
