package preprocess

import (
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
	"unsafe"

	"github.com/urfave/cli/v2"

	"monotron/dataset"
	"monotron/dataset/jsonl"
	"monotron/internal/argv"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/megatron/plan"
	"monotron/tokenizer"
)

// text makes one document of every file. With --text-split the characters (as
// nanoGPT counts them) before the cut go to one pair and the rest to another.
// A CharTokenizer's vocabulary, where none was given, is that of all files
// together; it is written next to the output.
func (o *options) text(c *cli.Context) error {
	texts, most := make([]string, len(o.inputs)), mostText()
	for i, path := range o.inputs {
		data, err := o.readAll(path, most)
		if err != nil {
			return err
		}
		if !utf8.Valid(data) {
			return exitcode.Errorf(exitcode.BadData, "%s is not UTF-8 text, which --input-format text needs; %s", path, tokenizer.Latin1)
		}
		most -= int64(len(data))
		texts[i] = unsafe.String(unsafe.SliceData(data), len(data)) // nobody changes it
	}
	if o.tok == nil {
		if err := o.makeChars(texts); err != nil {
			return err
		}
	}
	if !c.IsSet("text-split") {
		return o.writeText(o.joined("text"), texts)
	}
	front, back := make([]string, len(texts)), make([]string, len(texts))
	for i, t := range texts {
		cut := characterAt(t, int(float64(utf8.RuneCountInString(t))*o.textSplit))
		front[i], back[i] = t[:cut], t[cut:]
	}
	return errors.Join(o.writeText(o.joined("train"), front), o.writeText(o.joined("val"), back))
}

// makeChars makes the vocabulary of the texts and writes it.
func (o *options) makeChars(texts []string) error {
	chars, err := tokenizer.CharFromText(texts...)
	if err != nil {
		return err
	}
	if err := o.use(chars); err != nil {
		return err
	}
	path := o.vocabularyPath()
	o.settings.VocabFile = path
	if err := atomicfile.WriteFile(path, 0o666, chars.JSON()); err != nil {
		return err
	}
	o.say("%s: %d characters; train with --tokenizer-type CharTokenizer --vocab-file %s", path, chars.VocabSize(), argv.Quoted(path))
	return nil
}

func (o *options) writeText(prefix string, texts []string) error {
	b, err := dataset.OpenBuilder(dataset.BuilderConfig{Prefix: prefix, DType: o.dtype, Format: o.output})
	if err != nil {
		return err
	}
	defer b.Abort()
	e := &encoder{options: o}
	for i, t := range texts {
		doc, err := e.oneText(t)
		if err != nil {
			return exitcode.Errorf(exitcode.BadData, "%s: %w", o.inputs[i], err)
		}
		if err := b.AddEncoded(doc.raw, doc.lengths, doc.perDoc); err != nil {
			return err
		}
	}
	if err := b.Finalize(); err != nil {
		return err
	}
	o.say("%s: %s, %s of %s", prefix, logging.Count(b.Documents(), "document"), logging.Count(b.Tokens(), "token"), o.dtype)
	return o.describe(dataset.NewSidecar(o.tok, o.settings, b, o.appendEOD, 0), prefix)
}

// oneText encodes a text as one document. A CharTokenizer's ids are those of each character,
// so that its text goes through a small buffer; any other tokenizer sees all of it.
func (e *encoder) oneText(t string) (doc encoded, err error) {
	if _, ok := e.tok.(*tokenizer.Char); !ok {
		return doc, e.document(&doc, []string{t})
	}
	// Pieces that end between characters.
	doc.raw = make([]byte, 0, len(t)*e.dtype.Size())
	tokens := 0
	for at := 0; at < len(t); {
		end := min(at+blockBytes, len(t))
		for end < len(t) && !utf8.RuneStart(t[end]) {
			end++
		}
		if e.ids, err = e.tok.Append(e.ids[:0], t[at:end]); err != nil {
			return doc, fmt.Errorf("after byte %d: %w", at, err)
		}
		if doc.raw, err = e.dtype.Append(doc.raw, e.ids); err != nil {
			return doc, err
		}
		tokens += len(e.ids)
		at = end
	}
	// Lengths in the index are 32-bit.
	if int64(tokens) > math.MaxInt32 {
		return doc, fmt.Errorf("one document would have %d tokens, but the limit is %d; split the file", tokens, math.MaxInt32)
	}
	if tokens > 0 || e.emptyToo {
		doc.lengths = []int32{int32(tokens)}
	}
	doc.perDoc = []int32{int32(len(doc.lengths))}
	return doc, nil
}

// mostText is how many bytes all texts together may unpack to: of the memory left, a text
// takes its length, its tokens and what either outgrows.
func mostText() int64 { return plan.ProcessCapacity().Bytes / 6 }

// characterAt is the position of character n in text.
func characterAt(text string, n int) int {
	for at := range text {
		if n == 0 {
			return at
		}
		n--
	}
	return len(text)
}

// readAll reads and unpacks a file of at most so many bytes.
func (o *options) readAll(path string, most int64) ([]byte, error) {
	r, err := jsonl.Open(path, blockBytes)
	if err != nil {
		return nil, err
	}
	data, err := r.All(most)
	return data, errors.Join(err, r.Close())
}
