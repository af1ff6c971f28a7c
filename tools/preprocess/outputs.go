package preprocess

import (
	"errors"
	"io/fs"
	"os"
	"strings"

	"monotron/dataset"
	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
)

// apart refuses an output that would replace an input or a file of the tokenizer. (Earlier output of the
// same prefix is replaced, as by Megatron's tool.)
func (o *options) apart(inputs []string) error {
	if err := o.checkFolder(); err != nil {
		return err
	}
	var read []string
	for _, path := range inputs {
		if read = append(read, path); o.format == command.Tokens {
			prefix := strings.TrimSuffix(strings.TrimSuffix(path, ".idx"), ".bin")
			read = append(read, prefix+".bin", prefix+".idx")
		}
	}
	for _, path := range o.settings.Paths() {
		if *path != "" {
			read = append(read, *path)
		}
	}
	return command.Apart("output-prefix", o.outputs(), read)
}

// checkFolder refuses an output whose folder cannot be one.
func (o *options) checkFolder() error {
	st, err := os.Stat(o.folder())
	var at *os.PathError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // writing says so
	case errors.As(err, &at):
		return exitcode.Errorf(exitcode.IO, "--output-prefix %s: the folder %s cannot be used: %w", o.prefix, o.folder(), at.Err)
	case err == nil && !st.IsDir():
		return exitcode.Errorf(exitcode.IO, "--output-prefix %s: %s is a file, not a folder", o.prefix, o.folder())
	}
	return exitcode.With(exitcode.IO, err)
}

// outputs are the files that the run may write.
func (o *options) outputs() (files []string) {
	var prefixes []string
	switch {
	case o.format == command.Text && o.textSplit > 0:
		prefixes = []string{o.joined("train"), o.joined("val")}
	case o.format != command.JSONLines:
		prefixes = []string{o.joined("text")}
	}
	// Of JSON lines each key has its files, in partitions that are then joined.
	for _, key := range o.keys {
		if o.format != command.JSONLines {
			break
		}
		prefixes = append(prefixes, o.joined(key))
		for p := range o.partitions {
			prefixes = append(prefixes, o.name(p, key))
		}
	}
	for _, prefix := range prefixes {
		files = append(files, prefix+".bin", prefix+".idx")
		if o.output == dataset.Pair || o.output == dataset.OldPair {
			files = append(files, prefix+".json")
		}
	}
	if o.tok == nil && o.format == command.Text {
		files = append(files, o.vocabularyPath())
	}
	return files
}

// vocabularyPath is where the characters of a text are written, which no --vocab-file gives.
func (o *options) vocabularyPath() string { return o.prefix + "_vocab.json" }
