package native

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/zeebo/xxh3"

	"monotron/internal/exitcode"
	"monotron/internal/osadvice"
)

// Damage is a checkpoint, or a part of one, that is not what was written.
type Damage struct {
	Path     string // file or folder
	Tensor   string // empty: no tensor's bytes
	From, To int64  // bytes of the file; both 0 where that says nothing
	Reason   string
}

func (d *Damage) Error() string {
	var b strings.Builder
	b.WriteString(d.Path)
	if d.Tensor != "" {
		fmt.Fprintf(&b, ": tensor %q", d.Tensor)
	}
	if d.To > 0 {
		fmt.Fprintf(&b, ": bytes %d to %d", d.From, d.To)
	}
	return b.String() + ": " + strings.TrimPrefix(d.Reason, d.Path+" ")
}

// Pruned is a checkpoint that was removed while it was read.
type Pruned struct{ Path string }

func (p *Pruned) Error() string {
	return p.Path + " was removed while it was being read, by a run that keeps fewer checkpoints (--keep-last); use a newer checkpoint"
}

// lost is why something of the folder path cannot be opened: the folder itself may be gone.
func lost(path string, why error) error {
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return exitcode.With(exitcode.NoInput, &Pruned{path})
	}
	return exitcode.With(exitcode.IO, why)
}

// Folder is an open checkpoint whose manifest was checked and whose files have
// the sizes it says.
type Folder struct {
	Path     string
	Manifest *Manifest

	picks bool // its reader asks for what comes next by itself, see source.ahead

	mu    sync.Mutex
	files []*os.File // opened, and their headers checked, when first read
}

// OpenFolder opens one iter_ folder. What is wrong with it is a Damage in the
// error's chain, exitcode.IO.
func OpenFolder(path string) (*Folder, error) {
	m, err := readManifest(path)
	var damage *Damage
	if errors.As(err, &damage) {
		return nil, lost(path, damage)
	}
	if err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	for _, f := range m.Files {
		file := filepath.Join(path, f.Name)
		st, err := os.Stat(file)
		switch {
		case err != nil:
			return nil, lost(path, (&Damage{Path: file}).because(err))
		case !st.Mode().IsRegular():
			return nil, exitcode.With(exitcode.IO, &Damage{Path: file, Reason: "not a regular file"})
		case st.Size() != f.Bytes:
			return nil, exitcode.With(exitcode.IO, &Damage{Path: file, Reason: fmt.Sprintf("the file has %d bytes, but %d were written", st.Size(), f.Bytes)})
		}
	}
	return &Folder{Path: path, Manifest: m, files: make([]*os.File, len(m.Files))}, nil
}

func readManifest(folder string) (*Manifest, error) {
	path := filepath.Join(folder, manifestName)
	damage := (&Damage{Path: path}).because
	m, err := readTextFile(path)
	if err != nil {
		if foreign := megatrons(folder); foreign != "" && exitcode.CodeOf(err) == exitcode.NoInput {
			return nil, damage(fmt.Errorf("is missing; %s shows that Megatron-LM wrote this folder in a format that this version does not load", foreign))
		}
		return nil, damage(err)
	}
	if err := m.check(); err != nil {
		return nil, damage(err)
	}
	name := strings.TrimPrefix(filepath.Base(folder), oldPrefix)
	if n, ok := iteration(name); ok && n != m.State.Iteration {
		return nil, damage(fmt.Errorf("it is the manifest of iteration %d, which is not the iteration of the folder", m.State.Iteration))
	}
	return m, nil
}

// megatrons is the file or folder by which a checkpoint of Megatron-LM's own
// formats is known, "" where there is none.
func megatrons(folder string) string {
	for _, name := range []string{"mp_rank_00", "mp_rank_00_000", "metadata.json", ".metadata"} {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			return name
		}
	}
	return ""
}

// ours are the errors that say nothing about a file, but that this process may not read
// it, or cannot now: they do not permit replacing it by another checkpoint.
var ours = []error{fs.ErrPermission, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM}

// because is d with err, without the path that d says, as its reason.
func (d *Damage) because(err error) error {
	var inner *os.PathError
	if errors.As(err, &inner) {
		err = inner.Err
	}
	if slices.ContainsFunc(ours, func(e error) bool { return errors.Is(err, e) }) {
		return exitcode.Errorf(exitcode.IO, "%s cannot be read: %w", d.Path, err)
	}
	d.Reason = err.Error()
	if errors.Is(err, fs.ErrNotExist) || exitcode.CodeOf(err) == exitcode.NoInput {
		d.Reason = "is missing"
	}
	return d
}

// Close closes the files.
func (f *Folder) Close() {
	for _, file := range f.files {
		if file != nil {
			_ = file.Close() // opened for reading
		}
	}
}

// file opens the i-th file and checks its header. Several goroutines may call it.
func (f *Folder) file(i int) (*os.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.files[i] != nil {
		return f.files[i], nil
	}
	entry := f.Manifest.Files[i]
	path := filepath.Join(f.Path, entry.Name)
	file, err := exitcode.Open(path)
	if err != nil {
		return nil, lost(f.Path, (&Damage{Path: path}).because(err))
	}
	hash := xxh3.New()
	if _, err := io.Copy(hash, io.NewSectionReader(file, 0, entry.HeaderBytes)); err != nil {
		_ = file.Close()
		return nil, (&Damage{Path: path}).because(err)
	}
	if is := hexSum(hash.Sum128()); is != entry.HeaderXXH3 {
		_ = file.Close()
		return nil, &Damage{Path: path, To: entry.HeaderBytes, Reason: fmt.Sprintf("the checksum is %s, but must be %s", is, entry.HeaderXXH3)}
	}
	if f.picks {
		osadvice.Random(file)
	}
	f.files[i] = file
	return file, nil
}

// buffer is a chunk, or as much of it as the largest piece needs.
func (f *Folder) buffer() []byte {
	need := int64(1)
	for i := range f.Manifest.Tensors {
		t := &f.Manifest.Tensors[i]
		for _, p := range t.Pieces {
			need = max(need, t.Bytes(p))
		}
	}
	return make([]byte, min(need, readBytes))
}

// readBytes are read and checked at a time: few enough to stay cached meanwhile.
const readBytes = 4 * blockBytes

// Stream reads a piece of t in chunks of complete elements, buf's size at most,
// and checks it. A piece that fits buf is checked before each sees it; of a
// longer one each sees chunks before the end of the check.
func (f *Folder) Stream(t *Tensor, p Piece, buf []byte, each func(at int64, chunk []byte) error) error {
	file, err := f.file(p.File)
	if err != nil {
		return err
	}
	total, hash := t.Bytes(p), xxh3.New()
	damage := &Damage{Path: file.Name(), Tensor: t.Name, From: p.Offset, To: p.Offset + total}
	for at := int64(0); at < total; at += int64(len(buf)) {
		chunk := buf[:min(int64(len(buf)), total-at)]
		if _, err := file.ReadAt(chunk, p.Offset+at); err != nil {
			return damage.because(err)
		}
		_, _ = hash.Write(chunk) // never fails
		if at+int64(len(chunk)) == total {
			if is := hexSum(hash.Sum128()); is != p.XXH3 {
				return damage.because(fmt.Errorf("the checksum is %s, but must be %s", is, p.XXH3))
			}
		}
		if err := each(at, chunk); err != nil {
			return err
		}
	}
	return nil
}

// into gives buf, or as much of it as is left to read.
func into(buf []byte) func(at, n int64) []byte {
	return func(_, n int64) []byte { return buf[:min(n, int64(len(buf)))] }
}

// readSpan is Stream for one of a piece's spans. buffer gives memory for at most
// n bytes at.. of the piece, complete blocks or all n.
func (f *Folder) readSpan(t *Tensor, p Piece, from, to int64, buffer func(at, n int64) []byte, each func(at int64, chunk []byte) error) error {
	file, err := f.file(p.File)
	if err != nil {
		return err
	}
	hash := xxh3.New()
	for at := from; at < to; {
		chunk := buffer(at, min(to-at, readBytes))
		if _, err := file.ReadAt(chunk, p.Offset+at); err != nil {
			return (&Damage{Path: file.Name(), Tensor: t.Name, From: p.Offset + at, To: p.Offset + at + int64(len(chunk))}).because(err)
		}
		if p.Blocks != "" {
			if err := p.checkBlocks(at, chunk); err != nil {
				err.Path, err.Tensor = file.Name(), t.Name
				return err
			}
		} else {
			_, _ = hash.Write(chunk) // never fails
			if is := hexSum(hash.Sum128()); at+int64(len(chunk)) == to && is != p.XXH3 {
				return &Damage{Path: file.Name(), Tensor: t.Name, From: p.Offset, To: p.Offset + to, Reason: fmt.Sprintf("the checksum is %s, but must be %s", is, p.XXH3)}
			}
		}
		if err := each(at, chunk); err != nil {
			return err
		}
		at += int64(len(chunk))
	}
	return nil
}

// checkBlocks compares the blocks in chunk, bytes at.. of the piece, with what was written.
func (p *Piece) checkBlocks(at int64, chunk []byte) *Damage {
	is, was := string(blockSums(nil, chunk)), p.Blocks[at/blockBytes*blockDigits:]
	for k := 0; k < len(is); k += blockDigits {
		if is[k:k+blockDigits] != was[k:k+blockDigits] {
			from := p.Offset + at + int64(k/blockDigits)*blockBytes
			return &Damage{From: from, To: min(from+blockBytes, p.Offset+at+int64(len(chunk))),
				Reason: fmt.Sprintf("the checksum is %s, but must be %s", is[k:k+blockDigits], was[k:k+blockDigits])}
		}
	}
	return nil
}

// Verify reads all of a checkpoint and returns every Damage found, joined, or nil.
func (f *Folder) Verify() error {
	var found []error
	for i := range f.Manifest.Files {
		if _, err := f.file(i); err != nil {
			found = append(found, err)
		}
	}
	if len(found) > 0 {
		return foundAs(found) // every piece of those files would fail the same way
	}
	if err := f.verifyKept(); err != nil {
		found = append(found, err)
	}
	buf := f.buffer()
	for i := range f.Manifest.Tensors {
		t := &f.Manifest.Tensors[i]
		for _, p := range t.Pieces {
			if err := f.Stream(t, p, buf, func(int64, []byte) error { return nil }); err != nil {
				found = append(found, err)
			}
		}
	}
	return foundAs(found)
}

// foundAs joins what was found: damage, but where the complete checkpoint is gone.
func foundAs(list []error) error {
	err := errors.Join(list...)
	var pruned *Pruned
	if errors.As(err, &pruned) {
		return exitcode.With(exitcode.NoInput, pruned)
	}
	return exitcode.With(exitcode.IO, err)
}

// Verify checks every byte of one checkpoint of a save folder; step -1 is the
// latest.
func Verify(dir string, step int64) error {
	_, err := newest(step, func() (bool, error) {
		f, err := Open(dir, step)
		if err != nil {
			return false, err
		}
		defer f.Close()
		return true, f.Verify()
	})
	return err
}

// Open opens one checkpoint of a save folder, or the one that dir itself is;
// step -1 is the latest, without any falling back. Where a run keeps few
// checkpoints meanwhile, that is the one which is the latest then.
func Open(dir string, step int64) (*Folder, error) {
	return newest(step, func() (*Folder, error) { return open(dir, step) })
}

func open(dir string, step int64) (*Folder, error) {
	latest := step < 0
	if latest {
		var err error
		if step, err = Latest(dir); err != nil {
			return nil, err
		}
	}
	list, err := readable(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if e.Iteration == step {
			return openLocked(e.Path)
		}
	}
	if latest {
		return nil, exitcode.With(exitcode.NoInput, &Pruned{filepath.Join(dir, iterName(step))})
	}
	return nil, exitcode.Errorf(exitcode.NoInput, "checkpoint: %s has no iteration %d", dir, step)
}

// openLocked is OpenFolder that also opens the files: their bytes are there then, whoever
// removes their names. Files beyond mostKept are opened when they are read; what is
// wrong with one is said then, too.
func openLocked(path string) (*Folder, error) {
	const mostKept = 16 // of each of many ranks
	f, err := OpenFolder(path)
	if err != nil {
		return nil, err
	}
	var pruned *Pruned
	for i := range min(len(f.files), mostKept) {
		if _, err := f.file(i); errors.As(err, &pruned) {
			f.Close()
			return nil, err
		}
	}
	return f, nil
}

// newest tries again where what was the latest checkpoint is removed meanwhile: then there
// is a newer one. A given step has no substitute.
func newest[T any](step int64, try func() (T, error)) (T, error) {
	const tries = 100 // a save that takes no longer than opening a file is none
	for n := 1; ; n++ {
		got, err := try()
		var pruned *Pruned
		if err == nil || step >= 0 || n == tries || !errors.As(err, &pruned) {
			return got, err
		}
	}
}

// OpenSound is Open; where step is negative and the latest cannot be opened, it is the
// newest that can.
func OpenSound(dir string, step int64) (*Folder, error) {
	f, first := Open(dir, step)
	if first == nil || step >= 0 {
		return f, first
	}
	list, err := List(dir)
	if err != nil {
		return nil, err
	}
	for i := len(list) - 1; i >= 0; i-- {
		if f, err := openLocked(list[i].Path); err == nil {
			return f, nil
		}
	}
	return nil, first
}
