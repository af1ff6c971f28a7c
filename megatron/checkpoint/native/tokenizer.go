package native

import (
	"fmt"
	"path/filepath"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/tokenizer"
)

// maxKept bounds one of a tokenizer's files, in bytes.
const maxKept = 1 << 28

// keepTokenizer writes the files of the run's tokenizer. Where they cannot be had that
// is a note: the tensors are worth more.
func (s *saver) keepTokenizer() (list []Kept, err error) {
	files, err := s.o.Tokenizer.Files(false)
	if err != nil {
		s.report.note("%s", checkpoint.NotKept(err))
		return nil, nil
	}
	if len(files) == 0 {
		return nil, nil
	}
	dir := filepath.Join(s.tmp, tokenizer.KeptFolder)
	if err := s.disk.mkdir(dir); err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := s.disk.text(filepath.Join(dir, f.Name), f.Data); err != nil {
			return nil, err
		}
		list = append(list, Kept{Name: f.Name, Bytes: int64(len(f.Data)), XXH3: sum(f.Data)})
	}
	return list, s.disk.sync(dir)
}

// checkKept trusts nothing that a manifest says about kept files.
func checkKept(list []Kept) error {
	names := map[string]bool{}
	for _, k := range list {
		if k.Name == "" || k.Name == "." || k.Name == ".." || filepath.Base(k.Name) != k.Name {
			return fmt.Errorf("%q is not a valid name of a tokenizer's file in the folder", k.Name)
		}
		if names[k.Name] {
			return fmt.Errorf("the tokenizer's file name %q occurs twice", k.Name)
		}
		names[k.Name] = true
		if k.Bytes < 0 || k.Bytes > maxKept {
			return fmt.Errorf("the tokenizer's file %q has %d bytes; it must have from 0 to %d", k.Name, k.Bytes, int64(maxKept))
		}
		if !isSum(k.XXH3) {
			return fmt.Errorf("the tokenizer's file %q has the checksum %q; it must have %d hexadecimal digits", k.Name, k.XXH3, sumDigits)
		}
	}
	return nil
}

// Tokenizer is c with the files that the checkpoint keeps, which are then those that were
// written; c itself where it keeps none. Of damaged ones nothing is said but a note: the
// tensors can be read all the same.
func (f *Folder) Tokenizer(c tokenizer.Config) (kept tokenizer.Config, notes []string) {
	if len(f.Manifest.Tokenizer) == 0 {
		return c, nil
	}
	if err := f.verifyKept(); err != nil {
		return tokenizer.Config{}, []string{fmt.Sprintf("the tokenizer of the checkpoint is not used: %v", err)}
	}
	return checkpoint.KeptTokenizer(f.Path, c), nil
}

// verifyKept compares the tokenizer's files with what was written.
func (f *Folder) verifyKept() error {
	for _, k := range f.Manifest.Tokenizer {
		path := filepath.Join(f.Path, tokenizer.KeptFolder, k.Name)
		data, err := exitcode.ReadFile(path, k.Bytes)
		switch {
		case err != nil:
			return (&Damage{Path: path}).because(err)
		case sum(data) != k.XXH3:
			return &Damage{Path: path, To: int64(len(data)), Reason: fmt.Sprintf("the checksum is %s, but must be %s", sum(data), k.XXH3)}
		}
	}
	return nil
}
