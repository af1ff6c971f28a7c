package torch

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/megatron"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// source is a checkpoint of Megatron's older format.
type source struct {
	dir     string
	ranks   []*rank
	files   []*pickle.File // of optimizers
	args    megatron.Args
	model   *spec.Model
	layout  checkpoint.Layout
	padding bool
	state   checkpoint.State
	notes   []string
	apart   []string                     // copies that differ
	copies  map[string][]checkpoint.Part // of tied embeddings: the last stage's, by the tensor's name

	shapes map[string][]int64 // of the model's tensors, without prefix
	list   []checkpoint.Tensor
	index  map[string]*entry
}

// entry is a global tensor and where its boxes are.
type entry struct {
	checkpoint.Tensor
	parts  []checkpoint.Part
	boxes  []mpu.Piece
	placed map[string]int  // index of the part, by box
	files  map[string]bool // of ranks that have it
}

// Open opens a save folder, an iter_ or release folder, or a rank's file of it.
// Errors: exitcode.NoInput where there is none, exitcode.BadData with file and tensor
// where its parts do not cover it.
func Open(path string, o checkpoint.OpenOptions) (checkpoint.Source, error) {
	dir, err := iterationFolder(path, o.Step)
	if err != nil {
		return nil, err
	}
	s := &source{dir: dir, padding: o.KeepPadding, index: map[string]*entry{}, shapes: map[string][]int64{}, copies: map[string][]checkpoint.Part{}}
	if err := s.open(); err != nil {
		_ = s.Close() // the error before it is the one to tell
		return nil, err
	}
	return s, nil
}

func (s *source) open() error {
	if err := s.openRanks(s.dir); err != nil {
		return err
	}
	if err := s.numberLayers(); err != nil {
		return err
	}
	// Shapes of the uncut tensors; a folder with a padded vocabulary keeps its padding.
	for _, t := range checkpoint.Expected(s.model) {
		if s.padding && checkpoint.IsVocabulary(t.Name) {
			t.Shape[0] = int64(s.model.PaddedVocabSize)
		}
		s.shapes[t.Name] = t.Shape
	}
	// The training state is the same in every rank's file, but for random numbers.
	s.state = megatron.ReadState(s.ranks[0].root, s.args)
	if s.ranks[0].before {
		s.notes = append(s.notes, "the checkpoint was written by Megatron-LM before Megatron Core: the weights are read, and the optimizer's state is left out")
	}
	rng := &megatron.RNG{Layout: s.layout, States: map[megatron.Rank]pickle.Value{}}
	for _, r := range s.ranks {
		if v, ok := r.root.Get("rng_state"); ok {
			rng.States[r.Rank] = v
		}
	}
	s.state.RNG = rng
	if filepath.Base(s.dir) == checkpoint.ReleaseName {
		s.state.Iteration, s.state.ConsumedTrain, s.state.ConsumedValid, s.state.SkippedTrain = 0, 0, 0, 0 // weights to begin with
	}
	for _, r := range s.ranks {
		// Every rank's tensors become parts of the uncut ones, which must then be covered.
		if err := s.addRank(r); err != nil {
			return err
		}
	}
	s.tellApart()
	return s.checkComplete()
}

// local is a parameter of a rank's state dict.
type local struct {
	megatron.Local
	tensor *pickle.Tensor
}

// addRank adds everything a rank's file holds.
func (s *source) addRank(r *rank) error {
	var params []local
	var chunks [][]local
	for c := range r.chunks {
		list, err := s.locals(r, c)
		if err != nil {
			return err
		}
		for _, p := range list {
			if isCopy(p.Local) {
				s.addCopy(checkpoint.Model, p.Parts(p.tensor.Width(), p.tensor.Strides, named(r.path, p.Key, p.tensor.ReadAt)))
				continue
			}
			if err := s.add(checkpoint.Model, r.path, p.Local, p.tensor); err != nil {
				return err
			}
		}
		params = append(params, list...)
		chunks = append(chunks, list)
	}
	return s.addOptimizer(r, params, chunks)
}

// locals lists a chunk's parameters in its own order.
func (s *source) locals(r *rank, chunk int) ([]local, error) {
	var list []local
	for _, pair := range r.chunks[chunk].Pairs {
		key, ok := pair.Key.(string)
		if !ok {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: a key of the model has type %s; it must be a string", r.path, pickle.TypeName(pair.Key))
		}
		k, ok := megatron.ParseKey(key)
		if !ok {
			continue // _extra_state
		}
		t, ok := pair.Value.(*pickle.Tensor)
		if !ok {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: %q has type %s; it must be a tensor", r.path, key, pickle.TypeName(pair.Value))
		}
		p, err := s.locate(r, chunk, key, k, t)
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, nil
}

// locate finds which part of which global tensor a rank's tensor is.
func (s *source) locate(r *rank, chunk int, key string, k megatron.Key, t *pickle.Tensor) (local, error) {
	p := local{tensor: t}
	p.Key, p.Expert = key, k.Expert >= 0
	// Numbers of layer and expert are the rank's own: they become the model's.
	layer, expert := 0, 0
	parts, at := s.layout.TP, r.TP
	if k.Layer >= 0 {
		layer = r.layers[chunk][k.Layer]
	}
	if p.Expert {
		expert = k.Expert
		if s.model.Experts != nil {
			expert += r.EP * (s.model.Experts.Num / s.layout.EP)
		}
		parts, at = s.layout.ETP, r.ETP(s.layout)
	}
	// A tied output layer is the embedding.
	p.Name = k.Name(layer, expert)
	if p.Name == checkpoint.OutputLayer && s.model.Tied {
		p.Name = checkpoint.WordEmbeddings
	}
	shape, known := s.shapes[p.Name]
	if !known {
		p.Cut = megatron.Cut{Shape: t.Shape, Pieces: []mpu.Piece{checkpoint.Uncut(t.Shape)}}
		return p, nil
	}
	// The rank's part of the global shape must be what is stored.
	cut, err := megatron.CutOver(s.model, p.Name, shape, parts, at)
	if err != nil {
		return p, exitcode.Errorf(exitcode.BadData, "%s: %w", r.path, err)
	}
	if p.Cut = cut; fmt.Sprint(cut.Shape) != fmt.Sprint(t.Shape) {
		return p, exitcode.Errorf(exitcode.BadData, "%s: tensor %q has the shape %v, but the checkpoint's args require %v", r.path, key, t.Shape, cut.Shape)
	}
	return p, nil
}

// add records a rank's tensor as a part of the global one under a prefix.
func (s *source) add(prefix, path string, p megatron.Local, t *pickle.Tensor) error {
	if checkpoint.Width(t.DType) == 0 || len(t.Shape) == 0 {
		return exitcode.Errorf(exitcode.BadData, "%s: tensor %q has the type and shape %s%v, which no parameter has", path, p.Key, t.DType, t.Shape)
	}
	if fmt.Sprint(t.Shape) != fmt.Sprint(p.Shape) {
		return exitcode.Errorf(exitcode.BadData, "%s: %s%s has the shape %v, but the parameter has the shape %v", path, prefix, p.Key, t.Shape, p.Shape)
	}
	return s.addParts(prefix, path, p, t.DType, p.Parts(t.Width(), t.Strides, named(path, p.Key, t.ReadAt)))
}

func named(path, key string, read func([]byte, int64) error) func([]byte, int64) error {
	return func(dst []byte, at int64) error {
		if err := read(dst, at); err != nil {
			return exitcode.Errorf(codeOr(err, exitcode.BadData), "%s: tensor %q: %w", path, key, err)
		}
		return nil
	}
}

func codeOr(err error, other exitcode.Code) exitcode.Code {
	if c := exitcode.CodeOf(err); c != exitcode.Internal {
		return c
	}
	return other
}

func (s *source) addParts(prefix, path string, p megatron.Local, dtype string, parts []checkpoint.Part) error {
	name := prefix + p.Name
	e := s.index[name]
	if e == nil {
		shape, ok := s.shapes[p.Name]
		if !ok {
			shape = p.Shape
		}
		e = &entry{Tensor: checkpoint.Tensor{Name: name, DType: dtype, Shape: shape}, placed: map[string]int{}, files: map[string]bool{}}
		s.index[name] = e
		s.list = append(s.list, e.Tensor)
	}
	if e.DType != dtype {
		return exitcode.Errorf(exitcode.BadData, "%s: tensor %q is %s on this rank, but %s on another rank", path, p.Key, dtype, e.DType)
	}
	e.files[path] = true
	for i, part := range parts {
		box := fmt.Sprint(part.Box.From, part.Box.Size)
		if first, ok := e.placed[box]; ok {
			if err := s.compare(e, path, e.parts[first], part); err != nil {
				return err
			}
			if isCopy(p) {
				s.addCopy(prefix, parts[i:i+1])
			}
			continue // a replica
		}
		e.placed[box] = len(e.parts)
		e.parts = append(e.parts, part)
		e.boxes = append(e.boxes, part.Box)
	}
	return nil
}

// compare notes a rank's copy of a vector (a norm, a bias) that is not that of the
// first rank: in some runs they have come apart.
func (s *source) compare(e *entry, path string, first, copied checkpoint.Part) error {
	const most = 1 << 20
	n := copied.Box.Len() * checkpoint.Width(e.DType)
	if len(e.Shape) != 1 || n > most {
		return nil
	}
	a, b := make([]byte, n), make([]byte, n)
	if err := first.ReadAt(a, 0); err != nil {
		return err
	}
	if err := copied.ReadAt(b, 0); err != nil {
		return err
	}
	if !bytes.Equal(a, b) {
		s.apart = append(s.apart, fmt.Sprintf("%s in %s", e.Name, path))
	}
	return nil
}

// tellApart makes a note of the copies that differ.
func (s *source) tellApart() {
	if len(s.apart) > 0 {
		s.notes = append(s.notes, fmt.Sprintf("%d copies of tensors differ from those of the first rank, which are used; the first such copy is %s", len(s.apart), s.apart[0]))
	}
}

// without names the files of ranks that lack a tensor which others of their
// pipeline stage have.
func (s *source) without(e *entry) string {
	stages := map[int]bool{}
	for _, r := range s.ranks {
		if e.files[r.path] {
			stages[r.PP] = true
		}
	}
	var lack []string
	for _, r := range s.ranks {
		if stages[r.PP] && !e.files[r.path] {
			lack = append(lack, r.path)
		}
	}
	if len(lack) == 0 {
		return ""
	}
	return fmt.Sprintf(" (it is not in %s)", strings.Join(lack, ", "))
}

// checkComplete lists the tensors that the ranks' parts do not make up.
func (s *source) checkComplete() error {
	used := 0
	var wrong []error
	for _, t := range s.list {
		if err := checkpoint.Tile(t.Shape, s.index[t.Name].boxes, &used); err != nil {
			wrong = append(wrong, fmt.Errorf("tensor %q: %w%s", strings.TrimPrefix(t.Name, checkpoint.Model), err, s.without(s.index[t.Name])))
		}
	}
	if len(wrong) > 0 {
		return exitcode.Errorf(exitcode.BadData, "%s: %w", s.dir, errors.Join(wrong...))
	}
	return nil
}

func (s *source) Info() checkpoint.Info {
	return checkpoint.Info{Format: checkpoint.MegatronTorch, Path: s.dir, Model: s.model, SeqLength: s.args.Int("seq_length", 0), Layout: s.layout, Tokenizer: s.args.Tokenizer(s.dir), Specials: s.args.Specials(), Notes: s.notes}
}

// Origin names the files that have parts of a tensor.
func (s *source) Origin(name string) string {
	where := s.dir
	if e := s.index[name]; e != nil {
		where = strings.Join(slices.Sorted(maps.Keys(e.files)), ", ")
	}
	return fmt.Sprintf("%s: tensor %q", where, name)
}

func (s *source) Tensors() []checkpoint.Tensor { return s.list }
func (s *source) State() checkpoint.State      { return s.state }

func (s *source) Read(name string, box mpu.Piece, dst []byte) error {
	e := s.index[name]
	if e == nil || !checkpoint.Inside(box, e.Shape) || int64(len(dst)) != box.Len()*checkpoint.Width(e.DType) {
		return exitcode.Errorf(exitcode.Internal, "internal error: %s: a buffer of %d bytes does not fit the part from %v of size %v of tensor %q; report this, and include the command line", s.dir, len(dst), box.From, box.Size, name)
	}
	return checkpoint.ReadParts(e.parts, checkpoint.Width(e.DType), box, dst)
}

func (s *source) Close() error {
	var errs []error
	for _, r := range s.ranks {
		errs = append(errs, r.file.Close())
	}
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
