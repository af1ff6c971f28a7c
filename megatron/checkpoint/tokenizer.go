package checkpoint

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// KeepTokenizer puts the files of a checkpoint's tokenizer into its folder, those of
// GPT-2's built-in ranks too: other programs have none. Files that cannot be had, or
// are too large, are a note and no error: the tensors are worth more.
func KeepTokenizer(dir string, c tokenizer.Config) (kept bool, note string, err error) {
	files, err := c.Files(true)
	if err != nil {
		return false, NotKept(err), nil
	}
	if len(files) == 0 {
		return false, "", nil
	}
	folder := filepath.Join(dir, tokenizer.KeptFolder)
	if err := os.Mkdir(folder, 0o777); err != nil {
		return false, "", exitcode.With(exitcode.IO, err)
	}
	for _, f := range files {
		if err := WriteBytes(filepath.Join(folder, f.Name), f.Data); err != nil {
			return false, "", err
		}
	}
	return true, "", nil
}

// NotKept is the note of a checkpoint that has no copy of its tokenizer's files.
func NotKept(why error) string {
	return fmt.Sprintf("the checkpoint does not contain a copy of its tokenizer: %v", why)
}

// WriteBytes makes a file of data.
func WriteBytes(path string, data []byte) error {
	return WriteFile(path, func(w io.Writer) error { _, err := w.Write(data); return err })
}

// KeptTokenizer is c with the files that the checkpoint in folder dir keeps, or as it is.
func KeptTokenizer(dir string, c tokenizer.Config) tokenizer.Config {
	return c.In(filepath.Join(dir, tokenizer.KeptFolder))
}
