package checkpoint

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"sync"

	"monotron/fault"
	"monotron/megatron/checkpoint/formats"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// source is a native checkpoint as formats.Source.
type source struct {
	folder *Folder
	info   formats.Info
	list   []formats.Tensor
	index  map[string]*Tensor

	mu      sync.Mutex
	checked map[*Tensor]bool // their bytes have the checksums that were written
}

// RunConfig is the part of a run's saved Config (training.Config) that says
// which model the tensors are.
type RunConfig struct {
	Model     spec.Model
	Precision string
	SeqLength int
	Flags     map[string][]string `json:",omitempty"`
}

// OpenSource opens a native checkpoint for reading by name and box: a save
// folder or one of its iter_ folders. A tensor's checksums are compared when it
// is first read.
func OpenSource(path string, o formats.OpenOptions) (formats.Source, error) {
	f, err := openAny(path, o.Step)
	if err != nil {
		return nil, err
	}
	s := &source{folder: f, index: map[string]*Tensor{}, checked: map[*Tensor]bool{}}
	var c RunConfig
	if len(f.Manifest.State.Config) > 0 {
		if err := json.Unmarshal(f.Manifest.State.Config, &c); err != nil {
			f.Close()
			return nil, fault.Errorf(fault.BadData, "%s: the run's config in its manifest: %w", f.Path, err)
		}
	}
	s.info = formats.Info{Format: formats.Native, Path: f.Path, Model: &c.Model, SeqLength: c.SeqLength}
	for i := range f.Manifest.Tensors {
		t := &f.Manifest.Tensors[i]
		s.index[t.Name] = t
		s.list = append(s.list, formats.Tensor{Name: t.Name, DType: t.DType, Shape: t.Shape})
	}
	return s, nil
}

func openAny(path string, step int64) (*Folder, error) {
	if _, ok := iteration(filepath.Base(filepath.Clean(path))); ok {
		return OpenFolder(path)
	}
	return Open(path, step)
}

func (s *source) Info() formats.Info        { return s.info }
func (s *source) Tensors() []formats.Tensor { return s.list }
func (s *source) State() formats.State      { return s.folder.Manifest.State }

func (s *source) Close() error {
	s.folder.Close()
	return nil
}

func (s *source) Read(name string, box mpu.Piece, dst []byte) error {
	t := s.index[name]
	if t == nil {
		return fault.Errorf(fault.Internal, "checkpoint: %s has no tensor %q", s.folder.Path, name)
	}
	width := dtypeOf[t.DType].Size()
	if !formats.Inside(box, t.Shape) || int64(len(dst)) != box.Len()*width {
		return fault.Errorf(fault.Internal, "checkpoint: a box of %d bytes from %v size %v of tensor %q %v", len(dst), box.From, box.Size, name, t.Shape)
	}
	parts, err := s.parts(t)
	if err != nil {
		return err
	}
	return formats.ReadParts(parts, width, box, dst)
}

// parts are t's pieces, whose bytes are those that were written.
func (s *source) parts(t *Tensor) ([]formats.Part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.checked[t] {
		if err := s.check(t); err != nil {
			return nil, err
		}
		s.checked[t] = true
	}
	parts := make([]formats.Part, len(t.Pieces))
	for i, p := range t.Pieces {
		file, err := s.folder.file(p.File)
		if err != nil {
			return nil, fault.With(fault.IO, err)
		}
		parts[i] = formats.Part{Box: p.box(), ReadAt: func(dst []byte, at int64) error {
			if _, err := file.ReadAt(dst, p.Offset+at); err != nil {
				return fault.With(fault.IO, &Damage{Path: file.Name(), Tensor: t.Name, From: p.Offset, To: p.Offset + t.Bytes(p), Reason: reason(err)})
			}
			return nil
		}}
	}
	return parts, nil
}

func (s *source) check(t *Tensor) error {
	for _, p := range t.Pieces {
		buf := make([]byte, min(t.Bytes(p), checkBytes))
		if err := s.folder.Stream(t, p, buf, func(int64, []byte) error { return nil }); err != nil {
			return fault.With(fault.IO, fmt.Errorf("checkpoint: %w", err))
		}
	}
	return nil
}

const checkBytes = 4 << 20
