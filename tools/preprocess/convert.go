package preprocess

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"monotron/dataset"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
)

// convert copies token files into another format, documents and sequences as
// they are. In a file without index a document ends after each end-of-document
// id, that of llm.c's format or else the named tokenizer's.
func (o *options) convert() (err error) {
	eod := int32(-1)
	if o.tok != nil {
		eod = int32(o.tok.EOD())
	}
	var b *dataset.Builder
	defer func() {
		if b != nil {
			b.Abort()
		}
	}()
	prefix := o.joined("text")
	// Files one after another into one builder, whose type is the first file's or the tokenizer's.
	for _, path := range o.inputs {
		x, err := openTokens(path, eod)
		if err != nil {
			return err
		}
		if b == nil {
			if o.tok == nil {
				o.typeOf(x)
			}
			if b, err = dataset.OpenBuilder(dataset.BuilderConfig{Prefix: prefix, DType: o.dtype, Format: o.output}); err != nil {
				return errors.Join(err, x.Close())
			}
		}
		err = dataset.Guard(path, func() error {
			o.say("%s: %s, %s, %s of %s", path, x.Kind(), logging.Count(x.Documents(), "document"), logging.Count(x.Tokens(), "token"), x.DType())
			return o.copyDocuments(b, x)
		})
		if err := errors.Join(err, x.Close()); err != nil {
			return err
		}
	}
	// Names are given when everything is written.
	if err := b.Prepare(); err != nil {
		return err
	}
	if err := b.Publish(); err != nil {
		return err
	}
	o.say("%s: %s, %s, %s of %s", prefix, logging.Count(b.Documents(), "document"), logging.Count(b.Sequences(), "sequence"), logging.Count(b.Tokens(), "token"), o.dtype)
	if o.tok == nil {
		return dataset.RemoveSidecar(prefix)
	}
	return o.describe(dataset.NewSidecar(o.tok, o.settings, b, false, 0), prefix)
}

// openTokens opens a pair by its prefix or one of its names, or a lone .bin.
func openTokens(path string, eod int32) (*dataset.Indexed, error) {
	prefix := strings.TrimSuffix(strings.TrimSuffix(path, ".idx"), ".bin")
	if _, err := os.Stat(prefix + ".idx"); err == nil {
		return dataset.Open(prefix)
	}
	if !dataset.IsTokenFile(path) {
		return nil, exitcode.Errorf(exitcode.NoInput, "%s is neither the prefix of a .bin/.idx pair nor a .bin file of token ids", path)
	}
	return dataset.OpenTokens(path, eod)
}

// typeOf takes the type of the first input, as far as the output format has it.
func (o *options) typeOf(x *dataset.Indexed) {
	o.dtype = x.DType()
	switch {
	case o.output == dataset.OldPair:
		o.dtype = dataset.I32
	case o.output == dataset.Raw || o.output == dataset.LLMC && o.dtype != dataset.I32:
		o.dtype = dataset.U16
	}
}

func (o *options) copyDocuments(b *dataset.Builder, x *dataset.Indexed) error {
	var ids, lengths []int32
	for d := range x.Documents() {
		ids, lengths = ids[:0], lengths[:0]
		first, end := x.Document(d)
		for i := first; i < end; i++ {
			var err error
			if ids, err = x.Slice(i, 0, x.Size(i), ids); err != nil {
				return err
			}
			lengths = append(lengths, int32(x.Size(i)))
		}
		if o.tok != nil {
			for at, id := range ids {
				if id < 0 || int(id) >= o.tok.VocabSize() {
					return exitcode.Errorf(exitcode.BadData, "%s: document %d, token %d: id %d is outside the vocabulary of %d ids", x.Prefix(), d, at, id, o.tok.VocabSize())
				}
			}
		}
		if err := b.AddDocument(ids, lengths); err != nil {
			return fmt.Errorf("%s: document %d: %w", x.Prefix(), d, err)
		}
	}
	return nil
}
