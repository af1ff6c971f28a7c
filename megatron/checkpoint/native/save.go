package native

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sort"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/parallelio/blocks"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
	"monotron/mpu/comm/failure"
	"monotron/tokenizer"
)

const (
	// chunkBytes of the device's tensors are read at a time.
	chunkBytes = 4 << 20
	// cachedBytes are made and summed at a time, so that the second finds them cached.
	cachedBytes = 1 << 20
)

// SaveOptions say who saves and what is kept. The zero value is one rank that
// keeps everything.
type SaveOptions struct {
	Rank, World int          // of all ranks that save together; World 0: one
	Meet        func() error // waits for all ranks; not used by one
	Tag         string       // names this run's temporary folders, equal on all its ranks; empty: this process, or "ranks"

	KeepLast  int   // checkpoints to keep, the new one included; 0: all
	KeepEvery int64 // iterations divisible by it are kept for good; 0: none
	Keep      int64 // this iteration is kept; 0: none

	Tokenizer tokenizer.Config // whose files the checkpoint keeps; zero: none

	// Copy takes the finished checkpoint in folder to a second location, on rank 0, before
	// anything older is removed; nil: no copy.
	Copy func(ctx context.Context, folder string) error

	keepTracker bool                        // it names a later iteration, and does so afterwards
	fail        func(op, path string) error // tests
}

// part is a piece of a tensor that this rank writes.
type part struct {
	name  string
	dtype device.DType
	shape []int64 // of the global tensor
	piece mpu.Piece
	read  func(dst []byte, at int64) error // bytes at.. of the piece, one call after the other; or
	tasks []blocks.Task                    // which make them, several at a time
}

// saver is one rank's save under way.
type saver struct {
	dir, tmp string
	state    State
	parts    []part
	o        SaveOptions
	disk     disk
	report   Report
	done     bool // the checkpoint has its name
	phase    int  // of several ranks' save
}

// Save writes the tensors with Write set and the state to dir/iter_<iteration>,
// then names it in the tracker and prunes. Every rank calls it, and where one
// fails it is an error on all. Until the new checkpoint is complete on disk nothing
// earlier changes; any error leaves the earlier state and no partial folder. Errors are exitcode.IO but for our own
// mistakes (a part that no rank writes).
func Save(ctx context.Context, dir string, st State, tensors []mpu.Stored, dev *device.Device, o SaveOptions) (Report, error) {
	s, err := newSaver(dir, st, tensors, dev, o)
	if err != nil {
		return Report{}, err
	}
	return s.run(ctx)
}

func newSaver(dir string, st State, tensors []mpu.Stored, dev *device.Device, o SaveOptions) (*saver, error) {
	s := newWriter(dir, st, o)
	for _, t := range tensors {
		if !t.Write {
			continue
		}
		if err := s.add(t, dev); err != nil {
			return nil, err
		}
	}
	s.order()
	return s, nil
}

// newWriter is a saver that has no parts yet.
func newWriter(dir string, st State, o SaveOptions) *saver {
	if o.World < 2 {
		o.Rank, o.World, o.Meet = 0, 1, func() error { return nil }
	}
	if o.Tag == "" && o.World > 1 {
		o.Tag = "ranks" // of several processes, maybe
	}
	if o.Tag == "" {
		o.Tag = processTag
	}
	name := iterName(st.Iteration)
	s := &saver{dir: dir, tmp: filepath.Join(dir, tmpPrefix+name+"-"+o.Tag), state: st, o: o, disk: disk{o.fail}}
	s.report = Report{Folder: filepath.Join(dir, name), Iteration: st.Iteration}
	return s
}

// order puts wide elements first: every piece is then aligned in its file.
func (s *saver) order() {
	sort.SliceStable(s.parts, func(a, b int) bool { return s.parts[a].dtype.Size() > s.parts[b].dtype.Size() })
}

// add lists the pieces of a tensor, to be read from the device.
func (s *saver) add(t mpu.Stored, dev *device.Device) error {
	if err := checkStored(t); err != nil {
		return err
	}
	flat := t.Tensor.Reshape(t.Tensor.Len())
	width := t.Tensor.DType.Size()
	for _, piece := range t.Pieces {
		s.parts = append(s.parts, part{t.Name, t.Tensor.DType, t.Global, piece, func(dst []byte, at int64) error {
			dev.Read(dst, flat.Slice(0, piece.Local+at/width, int64(len(dst))/width))
			return dev.Err()
		}, nil})
		s.report.Bytes += piece.Len() * width
	}
	return nil
}

// checkStored catches what only a mistake of ours makes.
func checkStored(t mpu.Stored) error {
	bad := func(what string) error {
		return exitcode.Errorf(exitcode.Internal, "checkpoint: internal error: tensor %q %v: %s; report this, and include the command line", t.Name, t.Global, what)
	}
	if _, ok := dtypeName[t.Tensor.DType]; !ok || !t.Tensor.Given() || !t.Tensor.Contiguous() {
		return bad("its buffer " + t.Tensor.String() + " cannot be stored")
	}
	if _, ok := volume(t.Global, t.Tensor.DType.Size()); !ok {
		return bad("a tensor of this shape is too large or has a negative size")
	}
	for _, p := range t.Pieces {
		if !checkpoint.Inside(p, t.Global) || p.Local < 0 || p.Local+p.Len() > t.Tensor.Len() {
			return bad(fmt.Sprintf("the piece from %v of size %v at %d is outside the tensor or outside its buffer %v", p.From, p.Size, p.Local, t.Tensor))
		}
	}
	return nil
}

func (s *saver) run(ctx context.Context) (Report, error) {
	err := s.begin()
	if err == nil {
		err = s.write(ctx)
	}
	if s.o.World > 1 {
		_ = s.o.Meet() // all know how it went; only now its traces may go
	}
	for phase := range phases {
		if s.o.Rank == 0 && s.o.World > 1 {
			_ = s.disk.Remove(s.alive(phase))
		}
	}
	if err == nil {
		return s.report, nil
	}
	if s.o.Rank == 0 {
		_ = s.disk.Remove(s.tmp) // the error before it is the one to tell
	}
	if s.done {
		return s.report, exitcode.Errorf(exitcode.CodeOf(err), "%w; the checkpoint %s was already saved", err, s.report.Folder)
	}
	return s.report, exitcode.Errorf(exitcode.CodeOf(err), "%w; iteration %d was not saved, and earlier checkpoints are unchanged", err, s.state.Iteration)
}

// phases of a save by several ranks: folders, space, files, publishing.
const phases = 4

// alive is a file that exists while no rank has failed in a phase. Removing it needs
// no space on the disk, and every rank sees it gone. Each phase has its own: a fast
// rank may fail in the next one before a slow one has checked.
func (s *saver) alive(phase int) string { return fmt.Sprintf("%s.alive%d", s.tmp, phase) }

// agree ends a phase: it returns when all ranks are through it, with an error on
// every rank where one of them failed.
func (s *saver) agree(err error) error {
	if s.o.World == 1 {
		return err
	}
	mark := s.alive(s.phase)
	s.phase++
	if err != nil {
		_ = s.disk.Remove(mark)
	}
	if meeting := s.o.Meet(); err == nil {
		err = meeting
	}
	if err != nil {
		return err
	}
	if _, gone := os.Stat(mark); gone != nil {
		return exitcode.With(exitcode.IO, failure.Remotef("checkpoint: another rank failed to save its part, or %s is not shared by all ranks; read the errors of the other ranks", s.dir))
	}
	return nil
}

// begin makes the temporary folder and checks for space.
func (s *saver) begin() error {
	var err error
	if s.o.Rank == 0 {
		err = s.prepare()
	}
	if err := s.agree(err); err != nil {
		return err
	}
	const perPiece, once = 512, 1 << 16
	blocks := 2 * blocksOf(s.report.Bytes) // in this rank's part of the manifest and in the manifest
	return s.agree(s.disk.checkSpace(s.dir, s.state.Iteration, s.report.Bytes+blocks+int64(len(s.parts))*perPiece+once))
}

// prepare makes the folders, after what earlier saves left is gone.
func (s *saver) prepare() error {
	if err := s.disk.do("make", s.dir, func() error { return os.MkdirAll(s.dir, 0o777) }); err != nil {
		return err
	}
	if err := s.disk.clean(s.dir, s.o.Tag); err != nil {
		return err
	}
	if s.o.World > 1 { // its name is that of every such save: a killed one may have left it
		if err := s.disk.Remove(s.tmp); err != nil {
			return err
		}
		for phase := range phases {
			if err := s.disk.text(s.alive(phase), nil); err != nil {
				return err
			}
		}
	}
	return s.disk.mkdir(s.tmp)
}

// write makes this rank's file; rank 0 then joins all into a checkpoint.
func (s *saver) write(ctx context.Context) error {
	own, err := s.writeFile(ctx)
	if err == nil && s.o.Rank > 0 {
		err = s.writeManifest(own, partName(s.o.Rank))
	}
	if err := s.agree(err); err != nil {
		return err
	}
	if s.o.Rank == 0 {
		err = s.complete(ctx, own)
	}
	return s.agree(err)
}

func partName(rank int) string { return fmt.Sprintf("rank_%05d.json", rank) }

// header lays the parts out in a safetensors file: a complete tensor under its
// name, a piece with its corner behind the name.
func (s *saver) header() ([]byte, []safetensors.Info, error) {
	infos := make([]safetensors.Info, len(s.parts))
	for i, p := range s.parts {
		name := p.name
		if !equal(p.piece.Size, p.shape) {
			name += "@"
			for d, at := range p.piece.From {
				if d > 0 {
					name += "_"
				}
				name += fmt.Sprint(at)
			}
		}
		infos[i] = safetensors.Info{Name: name, DType: dtypeName[p.dtype], Shape: p.piece.Size}
	}
	header, err := safetensors.Header(infos, map[string]string{"format": manifestFormat})
	return header, infos, exitcode.With(exitcode.Internal, err)
}

// writeFile writes this rank's pieces and returns its part of the manifest.
func (s *saver) writeFile(ctx context.Context) (*Manifest, error) {
	header, infos, err := s.header()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("rank_%05d.safetensors", s.o.Rank)
	// The file's header is known before its data: sizes and offsets do not depend on them.
	m := &Manifest{Format: manifestFormat, Version: manifestVersion, State: s.state}
	m.Files = []File{{Name: name, Bytes: int64(len(header)) + s.report.Bytes, HeaderBytes: int64(len(header)), HeaderXXH3: sum(header)}}
	index := map[string]int{}
	err = s.disk.file(filepath.Join(s.tmp, name), func(out *output) error {
		if err := out.write(header); err != nil {
			return err
		}
		// Pieces come from the device a few at a time, ahead of the writes.
		ahead := blocks.Ahead(ctx, s.tasks(), s.offsets(infos))
		defer ahead.Stop()
		for i, p := range s.parts {
			hash, blocks, err := p.write(ctx, infos[i].Bytes, ahead, out)
			if err != nil {
				return err
			}
			at, ok := index[p.name]
			if !ok {
				at = len(m.Tensors)
				index[p.name] = at
				m.Tensors = append(m.Tensors, Tensor{Name: p.name, DType: dtypeName[p.dtype], Shape: p.shape})
			}
			t := &m.Tensors[at]
			t.Pieces = append(t.Pieces, Piece{From: p.piece.From, Size: p.piece.Size, Offset: infos[i].Offset, XXH3: hash, Blocks: blocks})
		}
		return nil
	})
	return m, err
}

func (s *saver) tasks() (all []blocks.Task) {
	for _, p := range s.parts {
		all = append(all, p.tasks...)
	}
	return all
}

// offsets are where the bytes of tasks go.
func (s *saver) offsets(infos []safetensors.Info) (all []int64) {
	for i, p := range s.parts {
		at := infos[i].Offset
		for _, t := range p.tasks {
			all = append(all, at)
			at += t.Bytes
		}
	}
	return all
}

// write streams the part's bytes and returns their checksum and, of a long part,
// those of its blocks.
func (p *part) write(ctx context.Context, bytes int64, ahead *blocks.Queue, out *output) (sum, blocks string, err error) {
	hash := newSums(bytes)
	for at := int64(0); at < bytes; {
		if err := ctx.Err(); err != nil {
			return "", "", fmt.Errorf("checkpoint: the save was stopped: %w", context.Cause(ctx))
		}
		n, err := p.writeSome(at, bytes-at, hash, ahead, out)
		if err != nil {
			return "", "", err
		}
		at += n
	}
	return hexSum(hash.full.Sum128()), hash.finish(), nil
}

// writeSome appends some of the left bytes, from at on.
func (p *part) writeSome(at, left int64, hash *sums, ahead *blocks.Queue, out *output) (int64, error) {
	if p.read != nil {
		return out.make(min(left, chunkBytes), func(dst []byte) error {
			for k := 0; k < len(dst); k += cachedBytes {
				part := dst[k:min(len(dst), k+cachedBytes)]
				if err := p.read(part, at+int64(k)); err != nil {
					return fmt.Errorf("checkpoint: reading tensor %q from the device: %w", p.name, err)
				}
				hash.add(part)
			}
			return nil
		})
	}
	chunk, back, err := ahead.Next()
	if err != nil {
		return 0, err
	}
	n := int64(len(chunk)) // behind take its bytes are others'
	hash.add(chunk)
	return n, out.take(chunk, back)
}

func (s *saver) writeManifest(m *Manifest, name string) error {
	return s.disk.file(filepath.Join(s.tmp, name), func(out *output) error { return m.writeText(out) })
}

// complete joins the ranks' parts into a checkpoint, has it copied and removes older ones.
func (s *saver) complete(ctx context.Context, own *Manifest) error {
	if err := s.join(own); err != nil {
		return err
	}
	if err := s.name(); err != nil {
		return err
	}
	if s.o.Copy != nil {
		if err := s.o.Copy(ctx, s.report.Folder); err != nil {
			return err
		}
	}
	var err error
	s.report.Removed, err = s.disk.prune(s.dir, s.state.Iteration, s.o)
	return err
}

// join makes the manifest of all ranks' parts.
func (s *saver) join(own *Manifest) error {
	parts := []*Manifest{own}
	for rank := 1; rank < s.o.World; rank++ {
		path := filepath.Join(s.tmp, partName(rank))
		part, err := readPart(path)
		if err != nil {
			return exitcode.Errorf(exitcode.IO, "checkpoint: the manifest of rank %d cannot be read: %w", rank, err)
		}
		if err := s.disk.Remove(path); err != nil {
			return err
		}
		parts = append(parts, part)
	}
	all, err := merge(parts)
	if err != nil {
		return exitcode.Errorf(exitcode.Internal, "checkpoint: the files that the ranks wrote are not complete: %w", err)
	}
	if all.Tokenizer, err = s.keepTokenizer(); err != nil {
		return err
	}
	return s.writeManifest(all, manifestName)
}

// name gives the folder its name and moves the tracker.
func (s *saver) name() error {
	if err := s.disk.sync(s.tmp); err != nil {
		return err
	}
	if err := s.readBack(s.tmp); err != nil { // publishing may replace a checkpoint of this iteration
		return err
	}
	if err := s.disk.publish(s.tmp, s.report.Folder); err != nil {
		return err
	}
	s.done = true
	if err := s.disk.sync(s.dir); err != nil {
		return err
	}
	if err := s.readBack(s.report.Folder); err != nil { // the tracker and pruning rely on it
		s.done = false
		return err
	}
	if s.o.keepTracker {
		return nil
	}
	return s.disk.point(s.dir, s.state.Iteration, s.o.Tag)
}

// readBack opens what was written as loading does: its manifest's size, checksum and
// contents, and the sizes of all its files.
func (s *saver) readBack(folder string) error {
	return s.disk.do("read back", folder, func() error {
		f, err := OpenFolder(folder)
		if err != nil {
			return err
		}
		f.Close()
		return nil
	})
}

// readPart reads what another rank of this save wrote. It holds some pieces of
// each tensor, so only the join can be checked.
func readPart(path string) (*Manifest, error) {
	m, err := readTextFile(path)
	if exitcode.CodeOf(err) == exitcode.NoInput {
		return nil, fmt.Errorf("%s is missing; check that all ranks share the same folder", path)
	}
	return m, err
}
