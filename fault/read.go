package fault

import (
	"errors"
	"io/fs"
	"os"
)

// ReadFile reads a plain file of at most `most` bytes. A missing one is NoInput, a
// larger one or one that is no plain file BadData.
func ReadFile(path string, most int64) ([]byte, error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, Errorf(NoInput, "%s does not exist", path)
	case err != nil:
		return nil, With(IO, err)
	case !st.Mode().IsRegular() || st.Size() > most:
		return nil, Errorf(BadData, "%s is no plain file of at most %d bytes", path, most)
	}
	data, err := os.ReadFile(path)
	return data, With(IO, err)
}
