package native

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"monotron/internal/exitcode"
	"monotron/internal/osadvice"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/tokenizer"
)

// source is a native checkpoint as checkpoint.Source.
type source struct {
	folder *Folder
	info   checkpoint.Info
	list   []checkpoint.Tensor
	index  map[string]*Tensor

	mu     sync.Mutex
	checks map[*Tensor][]*checked // of their pieces
}

// RunConfig is the part of a run's saved Config (training.Config) that says
// which model the tensors are.
type RunConfig struct {
	Model     spec.Model
	Tokenizer tokenizer.Config
	Precision string
	SeqLength int
	Flags     map[string][]string `json:",omitempty"`
}

// OpenSource opens a native checkpoint for reading by name and box: a save
// folder or one of its iter_ folders. Checksums are compared when bytes are
// first read.
func OpenSource(path string, o checkpoint.OpenOptions) (checkpoint.Source, error) {
	f, err := Open(path, o.Step)
	if err != nil {
		return nil, err
	}
	f.picks = true
	s := newSource(f)
	var c RunConfig
	if len(f.Manifest.State.Config) > 0 {
		if err := json.Unmarshal(f.Manifest.State.Config, &c); err != nil {
			f.Close()
			return nil, exitcode.Errorf(exitcode.BadData, "%s: the run's config in the manifest cannot be read: %w", f.Path, err)
		}
	}
	s.info.Model, s.info.SeqLength, s.info.Specials = &c.Model, c.SeqLength, f.Manifest.State.Specials()
	s.info.Tokenizer, s.info.Notes = f.Tokenizer(c.Tokenizer)
	return s, nil
}

func newSource(f *Folder) *source {
	s := &source{folder: f, index: map[string]*Tensor{}, checks: map[*Tensor][]*checked{}}
	s.info = checkpoint.Info{Format: checkpoint.Native, Path: f.Path}
	for i := range f.Manifest.Tensors {
		t := &f.Manifest.Tensors[i]
		s.index[t.Name] = t
		s.list = append(s.list, checkpoint.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape})
	}
	return s
}

func (s *source) Info() checkpoint.Info        { return s.info }
func (s *source) Tensors() []checkpoint.Tensor { return s.list }
func (s *source) State() checkpoint.State      { return s.folder.Manifest.State }

func (s *source) Close() error {
	s.folder.Close()
	return nil
}

func (s *source) Read(name string, box mpu.Piece, dst []byte) error {
	return s.ReadWatched(name, box, dst, func([]byte) {})
}

// ReadWatched is Read that shows what it reads.
func (s *source) ReadWatched(name string, box mpu.Piece, dst []byte, see func(raw []byte)) error {
	t := s.index[name]
	if t == nil {
		return exitcode.Errorf(exitcode.Internal, "checkpoint: internal error: %s has no tensor %q; report this, and include the command line", s.folder.Path, name)
	}
	width := dtypeOf[t.DType].Size()
	if !checkpoint.Inside(box, t.Shape) || int64(len(dst)) != box.Len()*width {
		return exitcode.Errorf(exitcode.Internal, "checkpoint: internal error: a buffer of %d bytes does not fit the part from %v of size %v of tensor %q %v; report this, and include the command line", len(dst), box.From, box.Size, name, t.Shape)
	}
	parts, err := s.parts(t, see)
	if err != nil {
		return err
	}
	return checkpoint.ReadParts(parts, width, box, dst)
}

// parts are t's pieces, whose bytes are those that were written and shown to see.
func (s *source) parts(t *Tensor, see func([]byte)) ([]checkpoint.Part, error) {
	checks := s.checksOf(t)
	parts := make([]checkpoint.Part, len(t.Pieces))
	for i, p := range t.Pieces {
		file, err := s.folder.file(p.File)
		if err != nil {
			return nil, exitcode.With(exitcode.IO, err)
		}
		parts[i] = checkpoint.Part{Box: p.box(), ReadAt: func(dst []byte, at int64) error { return checks[i].readAt(file, t, p, dst, at, see) }}
	}
	return parts, nil
}

// checked is what is known of a piece's bytes: which of its blocks have the sums
// that were written; of one without sums of blocks, whether it all has.
type checked struct {
	blocks []atomic.Bool
	full   func() error
	asked  atomic.Int64 // bytes, from the first on, that the disk was asked for
}

func (s *source) checksOf(t *Tensor) []*checked {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.checks[t]
	if list != nil {
		return list
	}
	for _, p := range t.Pieces {
		c := &checked{blocks: make([]atomic.Bool, len(p.Blocks)/blockDigits)}
		c.full = sync.OnceValue(func() error {
			buf := make([]byte, min(t.Bytes(p), checkBytes))
			return s.folder.Stream(t, p, buf, func(int64, []byte) error { return nil })
		})
		list = append(list, c)
	}
	s.checks[t] = list
	return list
}

// readAt fills dst with bytes at.. of piece p of t, some blocks at a time, so that
// they are checked and seen while they are cached.
func (c *checked) readAt(file *os.File, t *Tensor, p Piece, dst []byte, at int64, see func([]byte)) error {
	if p.Blocks == "" {
		if err := c.full(); err != nil {
			return exitcode.With(exitcode.IO, fmt.Errorf("checkpoint: %w", err))
		}
	}
	c.ahead(file, p, at, at+int64(len(dst)), t.Bytes(p))
	for len(dst) > 0 {
		n := min(int64(len(dst)), readBytes-at%blockBytes)
		if err := c.readSome(file, t, p, dst[:n], at); err != nil {
			return exitcode.With(exitcode.IO, fmt.Errorf("checkpoint: %w", err))
		}
		see(dst[:n])
		dst, at = dst[n:], at+n
	}
	return nil
}

// ahead asks the disk for the bytes of a piece that come next, and for no others: the
// system's own guess goes beyond, and often that is a tensor nobody wants.
func (c *checked) ahead(file *os.File, p Piece, from, to, total int64) {
	const window = 16 << 20
	asked, end := c.asked.Load(), min(total, to+window)
	if asked < total && asked < to+window/2 && c.asked.CompareAndSwap(asked, end) {
		from = max(from, asked)
		osadvice.WillNeed(file, p.Offset+from, end-from)
	}
}

// readSome is readAt of a few blocks. One that dst holds is checked there, another
// one is read for it, each once.
func (c *checked) readSome(file *os.File, t *Tensor, p Piece, dst []byte, at int64) error {
	read := func(dst []byte, at int64) error {
		if _, err := file.ReadAt(dst, p.Offset+at); err != nil {
			return (&Damage{Path: file.Name(), Tensor: t.Name, From: p.Offset, To: p.Offset + t.Bytes(p)}).because(err)
		}
		return nil
	}
	// Straight to where it is wanted; then every block that this touches is checked once.
	if err := read(dst, at); err != nil || p.Blocks == "" {
		return err
	}
	total, to := t.Bytes(p), at+int64(len(dst))
	for from := at / blockBytes * blockBytes; from < to; from += blockBytes {
		end, known := min(from+blockBytes, total), &c.blocks[from/blockBytes]
		if known.Load() {
			continue
		}
		var block []byte
		if from >= at && end <= to {
			// A block that dst holds in full is checked there, a part of one is read again.
			block = dst[from-at : end-at]
		} else {
			buf := blockBuffers.Get().(*[blockBytes]byte)
			defer blockBuffers.Put(buf)
			block = buf[:end-from]
			if err := read(block, from); err != nil {
				return err
			}
		}
		if err := p.checkBlocks(from, block); err != nil {
			err.Path, err.Tensor = file.Name(), t.Name
			return err
		}
		known.Store(true)
	}
	return nil
}

// blockBuffers are for blocks of which only a part was asked for.
var blockBuffers = sync.Pool{New: func() any { return new([blockBytes]byte) }}

const checkBytes = 4 << 20
