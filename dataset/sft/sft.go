package sft

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"sync"

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

	NeedsAnswer bool // of prompts: each row must have the field answer

	Rule         Rule  // of preference data
	BOSID, EOSID int32 // tokens that RuleORPO puts around a text; negative: none
	Block        int   // rows of RuleKTO among which answers are mismatched: a global batch
}

// Document is a row as tokens.
type Document struct {
	IDs    []int32
	Learn  [][2]int // tokens [from, to) that the loss learns, ascending
	Line   int64    // of the file, or its row where the file has no lines
	Turns  []Turn   // of a conversation; nil: the row is none
	Cut    int      // tokens that truncation took
	Length int      // tokens before truncation
	Unused string   // fields of the row that are not read, and which are; "": all that hold something are
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

// Counts is what became of the rows of a file.
type Counts struct {
	Rows      int // that were read
	Dropped   int // without a learned token
	Truncated int
	Tokens    int // that are kept
	Learned   int
	Unused    map[string]int // rows by Document.Unused
}

// UnusedText says which fields of a file's rows are not read, a line for each kind of row.
func (c *Counts) UnusedText() (lines []string) {
	for _, fields := range slices.Sorted(maps.Keys(c.Unused)) {
		lines = append(lines, fmt.Sprintf("%d of %d rows have fields that training ignores: %s", c.Unused[fields], c.Rows, fields))
	}
	return lines
}

// count counts a row's fields that are not read.
func (c *Counts) count(unused string) {
	if unused == "" {
		return
	}
	if c.Unused == nil {
		c.Unused = map[string]int{}
	}
	c.Unused[unused]++
}

// Load reads the documents of a file of JSON lines, a JSON array or Parquet, in its order. A row that
// cannot be used is exitcode.BadData and names the file, the line or row, and the field.
func Load(path string, tok tokenizer.Tokenizer, c Config) (docs []Document, counts Counts, err error) {
	all, err := Read(path, tok, c)
	if err != nil {
		return nil, counts, err
	}
	for _, d := range all {
		counts.Rows++
		counts.count(d.Unused)
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
	if counts.Rows == 0 {
		return nil, counts, exitcode.Errorf(exitcode.BadData, "%s has no rows; write one JSON object per line, or a JSON array of objects", path)
	}
	if len(docs) == 0 {
		return nil, counts, exitcode.Errorf(exitcode.BadData, "%s: among the first %d tokens of each row, none contributes to the loss (%d rows were read); raise --seq-length or check the rows with `monotron inspect samples --labels`", path, c.Length, counts.Rows)
	}
	return docs, counts, nil
}

// Read is Load with the rows that have nothing to learn.
func Read(path string, tok tokenizer.Tokenizer, c Config) (docs []Document, err error) {
	render := &renderer{tok: tok, config: c}
	err = eachRow(path, render.document, func(_ string, line int64, d Document) error {
		d.Line = line
		docs = append(docs, d)
		return nil
	})
	return docs, err
}

// eachRow gives the rows of a file to make, which several goroutines call, and what it made of them to
// take, in order. The first wrong row is the error.
func eachRow[T any](path string, make func(text []byte) (T, error), take func(where string, number int64, made T) error) (err error) {
	s, err := openRows(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for {
		rows, err := s.next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		for i, m := range madeOf(rows, make) {
			where := s.where(rows[i].number)
			if m.err != nil {
				return exitcode.With(exitcode.BadData, fmt.Errorf("%s: %w", where, m.err))
			}
			if err := take(where, rows[i].number, m.made); err != nil {
				return err
			}
		}
	}
}

// outcome is what became of a row.
type outcome[T any] struct {
	made T
	err  error
}

// madeOf makes something of each row by several goroutines.
func madeOf[T any](rows []given, do func(text []byte) (T, error)) []outcome[T] {
	list := make([]outcome[T], len(rows))
	var wait sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		wait.Go(func() {
			for i := w; i < len(rows); i += workers {
				list[i].made, list[i].err = do(rows[i].text)
			}
		})
	}
	wait.Wait()
	return list
}
