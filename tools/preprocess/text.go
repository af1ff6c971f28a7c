package preprocess

import (
	"bytes"
	"errors"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"monotron/dataset"
	"monotron/dataset/jsonl"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// text makes one document of every file. With --text-split the characters (as
// nanoGPT counts them) before the cut go to one pair and the rest to another.
// A CharTokenizer's vocabulary, where none was given, is that of all files
// together; it is written beside the output.
func (o *options) text(c *cli.Context) error {
	texts := make([]string, len(o.inputs))
	for i, path := range o.inputs {
		data, err := o.readAll(path)
		if err != nil {
			return err
		}
		if !utf8.Valid(data) {
			return exitcode.Errorf(exitcode.BadData, "%s: it is not UTF-8 text; --input-format text takes nothing else", path)
		}
		texts[i] = string(data)
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
	var all bytes.Buffer
	for _, t := range texts {
		all.WriteString(t)
	}
	chars, err := tokenizer.CharFromText(all.String())
	if err != nil {
		return err
	}
	if err := o.use(chars); err != nil {
		return err
	}
	path := o.prefix + "_vocab.json"
	if err := atomicfile.WriteFile(path, 0o666, chars.JSON()); err != nil {
		return err
	}
	o.say("%s: %d characters; train with --tokenizer-type CharTokenizer --vocab-file %s", path, chars.VocabSize(), path)
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
		var doc encoded
		if err := e.document(&doc, []string{t}); err != nil {
			return exitcode.Errorf(exitcode.BadData, "%s: %w", o.inputs[i], err)
		}
		if err := b.AddEncoded(doc.raw, doc.lengths, doc.perDoc); err != nil {
			return err
		}
	}
	if err := b.Finalize(); err != nil {
		return err
	}
	o.say("%s: %d documents, %d tokens of %s", prefix, b.Documents(), b.Tokens(), o.dtype)
	return o.describe(dataset.NewSidecar(o.tok, b, o.appendEOD, 0), prefix)
}

// characterAt is the place of character n in text.
func characterAt(text string, n int) int {
	for at := range text {
		if n == 0 {
			return at
		}
		n--
	}
	return len(text)
}

// readAll reads and unpacks a whole file.
func (o *options) readAll(path string) ([]byte, error) {
	r, err := jsonl.Open(path, blockBytes)
	if err != nil {
		return nil, err
	}
	data, err := r.All()
	return data, errors.Join(err, r.Close())
}
