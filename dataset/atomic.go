package dataset

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/internal/osadvice"
)

// newFile is a file that has its final name only once it is complete: written
// under another name in the same folder, synced, then renamed.
type newFile struct {
	w    *bufio.Writer // not embedded: all that writes must count
	file *os.File
	path string
	at   int64 // bytes written, with those still buffered
	sent int64 // bytes whose way to the disk was begun
}

// createFile starts a file under a temporary name of its own.
func createFile(path string) (*newFile, error) {
	f, err := atomicfile.Create(path, 0o666)
	if err != nil {
		return nil, err
	}
	return buffered(path, f.File), nil
}

// partial is the name of an unfinished file that a later run can continue.
func partial(path string) string {
	return filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".partial")
}

// continueFile opens the unfinished file of path, cut to its first `at` bytes;
// shorter ones are an error. Nobody else may be writing it.
func continueFile(path string, at int64) (*newFile, error) {
	f, err := atomicfile.Scratch(partial(path), 0o666)
	if os.IsNotExist(err) {
		return nil, exitcode.Errorf(exitcode.IO, "%s cannot be written: the folder %s does not exist", path, filepath.Dir(path))
	}
	if err != nil {
		return nil, cannotWrite(path, err)
	}
	// Only one process writes a file: a second would cut what the first has written.
	locked, err := atomicfile.Lock(f)
	if locked {
		err = errors.New("another process is writing it")
	}
	if err != nil {
		f.Close()
		return nil, cannotWrite(path, err)
	}
	// Bytes beyond at were written after the state that is continued from, and go.
	info, err := f.Stat()
	if err == nil && info.Size() < at {
		err = exitcode.Errorf(exitcode.IO, "%s has %d bytes, but the interrupted run wrote %d, so the file cannot be continued; run without --resume", f.Name(), info.Size(), at)
	}
	if err == nil {
		err = errors.Join(f.Truncate(at), seekTo(f, at))
	}
	if err != nil {
		f.Close()
		return nil, exitcode.With(exitcode.IO, err)
	}
	n := buffered(path, f)
	n.at, n.sent = at, at
	return n, nil
}

// cannotWrite names the file by the name that it will have.
func cannotWrite(path string, err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	return exitcode.Errorf(exitcode.IO, "%s cannot be written: %w", path, err)
}

func seekTo(f *os.File, at int64) error {
	_, err := f.Seek(at, io.SeekStart)
	return err
}

func buffered(path string, f *os.File) *newFile {
	return &newFile{w: bufio.NewWriterSize(f, 1<<18), file: f, path: path}
}

// aheadBytes is how much waits before its way to the disk is begun. What went
// ahead need not be waited for at the end.
const aheadBytes = 8 << 20

// Write counts.
func (n *newFile) Write(p []byte) (int, error) {
	k, err := n.w.Write(p)
	n.at += int64(k)
	if there := n.at - int64(n.w.Buffered()); there-n.sent >= aheadBytes {
		osadvice.WriteBack(n.file, n.sent, there-n.sent)
		n.sent = there
	}
	return k, err
}

// ReadFrom counts too.
func (n *newFile) ReadFrom(r io.Reader) (int64, error) {
	k, err := n.w.ReadFrom(r)
	n.at += k
	return k, err
}

// flush hands what is buffered to the system.
func (n *newFile) flush() error { return n.w.Flush() }

// save makes what was written so far safe.
func (n *newFile) save() error {
	if err := errors.Join(n.flush(), n.file.Sync()); err != nil {
		return exitcode.Errorf(exitcode.IO, "%s: %w", n.path, err)
	}
	return nil
}

// sync makes the content safe under the temporary name.
func (n *newFile) sync() error {
	err := errors.Join(n.flush(), n.file.Sync(), n.file.Close())
	if err != nil {
		return exitcode.Errorf(exitcode.IO, "%s: %w", n.path, err)
	}
	return nil
}

// publish gives a synced file its name.
func (n *newFile) publish() error { return atomicfile.Publish(n.file.Name(), n.path) }

// abort removes the temporary file; after publish it does nothing.
func (n *newFile) abort() {
	n.file.Close()
	os.Remove(n.file.Name())
}

// RewriteFile makes the file path of data. One process writes it at a time: what a
// killed one leaves is overwritten.
func RewriteFile(path string, data ...[]byte) error {
	n, err := continueFile(path, 0)
	if err != nil {
		return err
	}
	defer n.abort()
	for _, d := range data {
		if _, err := n.Write(d); err != nil {
			return exitcode.Errorf(exitcode.IO, "%s: %w", n.path, err)
		}
	}
	if err := n.sync(); err != nil {
		return err
	}
	return n.publish()
}
