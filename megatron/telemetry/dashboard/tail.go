package dashboard

import (
	"bufio"
	"errors"
	"io"
	"os"

	"monotron/internal/exitcode"
)

// longestLine is the most bytes a line of a log has; a longer one is not a step.
const longestLine = 1 << 20

// errShorter: a log that is followed has become another one.
var errShorter = errors.New("the log is shorter than it was")

// tail reads the complete lines that a log has got since it was last asked.
type tail struct {
	path     string
	position int64 // behind the last line that was read
	long     bool  // position is inside a line that is too long
}

// next gives each new line that is ended to take, without its end, with the position after
// it. A line that is too long is given as none of its bytes.
func (t *tail) next(take func(line []byte, position int64) error) error {
	file, size, err := t.open()
	if err != nil {
		return err
	}
	defer file.Close()
	if size == t.position {
		return nil // the most frequent case
	}
	limit := int(min(size-t.position, longestLine)) // a line is given complete, or is too long
	lines := bufio.NewReaderSize(io.NewSectionReader(file, t.position, size-t.position), limit)
	for {
		line, err := lines.ReadSlice('\n')
		switch err {
		case io.EOF:
			return nil
		case bufio.ErrBufferFull:
			t.position, t.long = t.position+int64(len(line)), true
			continue
		case nil:
		default:
			return exitcode.With(exitcode.IO, err)
		}
		t.position += int64(len(line))
		if t.long {
			t.long, line = false, nil
		}
		if err := take(line, t.position); err != nil {
			return err
		}
	}
}

// open opens the log, and says how long it is.
func (t *tail) open() (*os.File, int64, error) {
	file, err := exitcode.Open(t.path)
	if err != nil {
		return nil, 0, err
	}
	st, err := file.Stat()
	switch {
	case err != nil:
		err = exitcode.With(exitcode.IO, err)
	case st.Size() < t.position:
		err = errShorter
	default:
		return file, st.Size(), nil
	}
	return nil, 0, errors.Join(err, file.Close())
}

// rest is the start of a line that is not ended: a run writes it, or died at it.
func (t *tail) rest() ([]byte, error) {
	file, size, err := t.open()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := io.ReadAll(io.NewSectionReader(file, t.position, min(size-t.position, longestLine)))
	return text, exitcode.With(exitcode.IO, err)
}
