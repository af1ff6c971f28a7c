package gguf

import (
	"fmt"
	"slices"

	"monotron/internal/exitcode"
	"monotron/internal/gguf"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/tokenizer"
	"monotron/tokenizer/ggvocab"
)

// Open opens a GGUF file as a checkpoint. Quantised weights are shown as F32; of a file
// whose matrices are all F16 or all BF16 they keep that type.
func Open(path string, _ checkpoint.OpenOptions) (checkpoint.Source, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	src, err := open(f)
	if err != nil {
		_ = f.Close() // opened for reading
		return nil, err
	}
	return src, nil
}

func open(f *gguf.File) (checkpoint.Source, error) {
	config, fam, err := settle(f)
	if err != nil {
		return nil, err
	}
	c, err := newCorrespondence(config.Model, fam)
	if err != nil {
		return nil, exitcode.With(exitcode.BadData, fmt.Errorf("%s: %w", f.Path, err))
	}
	s := &store{f: f, c: c}
	if err := s.check(); err != nil {
		return nil, err
	}
	m := *config.Model
	m.Context = config.MaxPositions
	info := checkpoint.Info{Format: checkpoint.GGUF, Path: f.Path, Family: fam.hf, Model: &m, Specials: ggvocab.Specials(f)}
	if ggvocab.Has(f) {
		info.Tokenizer = tokenizer.Config{Type: "HuggingFaceTokenizer", Model: f.Path}
	}
	if s.quantised != "" {
		info.Notes = append(info.Notes, "weights are dequantised to f32: "+s.quantised)
	}
	return hf.NewMapped(info, checkpoint.State{}, c.mapping, []hf.Kind{{Prefix: checkpoint.Model, Store: s}}, f.Close)
}

// store shows a file's tensors under Hugging Face's names.
type store struct {
	f         *gguf.File
	c         *correspondence
	files     []gguf.Tensor // by the correspondence's number
	dtype     string        // of matrices
	quantised string        // types of quantised tensors, for a person; "": none
}

// check finds every tensor of the model in its shape, and no other.
func (s *store) check() error {
	var wrong []error
	used := map[string]bool{ropeFreqs: true}
	s.files = make([]gguf.Tensor, len(s.c.list))
	for i := range s.c.list {
		t := &s.c.list[i]
		found, ok := s.f.Tensor(t.name)
		used[t.name] = true
		switch {
		case !ok:
			wrong = append(wrong, fmt.Errorf("%s: the metadata asks for the tensor %q, which is not in the file", s.f.Path, t.name))
		case !sameShape(found.Shape(), t.shape):
			wrong = append(wrong, fmt.Errorf("%s: tensor %q has the shape %v, but by the metadata it is %v", s.f.Path, t.name, found.Shape(), t.shape))
		}
		s.files[i] = found
	}
	for _, t := range s.f.Tensors {
		if !used[t.Name] {
			wrong = append(wrong, fmt.Errorf("%s: unexpected tensor %q for the model of the metadata; leaving it out would change the results", s.f.Path, t.Name))
		}
	}
	if len(wrong) > 0 {
		return exitcode.With(exitcode.BadData, hf.Some(wrong))
	}
	s.choose()
	return nil
}

// sameShape ignores leading dimensions of one.
func sameShape(a, b []int64) bool {
	for len(a) > 1 && a[0] == 1 {
		a = a[1:]
	}
	for len(b) > 1 && b[0] == 1 {
		b = b[1:]
	}
	return slices.Equal(a, b)
}

// plainNames are the types that are shown as they are.
var plainNames = map[gguf.Type]string{gguf.F32: "F32", gguf.F16: "F16", gguf.BF16: "BF16"}

// choose sets the type of matrices, which must be one of all of them.
func (s *store) choose() {
	count := map[gguf.Type]int{}
	for i := range s.c.list {
		if kind := s.files[i].Type; !s.c.list[i].full || !kind.Plain() {
			count[kind]++
		}
	}
	s.dtype = "F32"
	for kind := range count {
		if len(count) == 1 && kind.Plain() {
			s.dtype = plainNames[kind]
		}
	}
	var list []string
	for kind, n := range count {
		if !kind.Plain() {
			list = append(list, fmt.Sprintf("%d tensors of %v", n, kind))
		}
	}
	slices.Sort(list)
	for i, text := range list {
		if i > 0 {
			s.quantised += ", "
		}
		s.quantised += text
	}
}

// Info is a hf.Store's.
func (s *store) Info(name string) (dtype string, shape []int64, ok bool) {
	p, ok := s.c.where[name]
	if !ok {
		return "", nil, false
	}
	if t := &s.c.list[p.tensor]; t.full {
		return "F32", p.shape, true
	}
	return s.dtype, p.shape, true
}

// Where is a hf.Store's.
func (s *store) Where(name string) string {
	p, ok := s.c.where[name]
	if !ok {
		return fmt.Sprintf("%s: tensor %q", s.f.Path, name)
	}
	return fmt.Sprintf("%s: tensor %q", s.f.Path, s.c.list[p.tensor].name)
}

// ReadAt is a hf.Store's: complete elements of Hugging Face's tensor from byte at.
func (s *store) ReadAt(name string, dst []byte, at int64) error {
	p, ok := s.c.where[name]
	if !ok {
		return exitcode.Errorf(exitcode.Internal, "%s has no tensor %q", s.f.Path, name)
	}
	dtype, _, _ := s.Info(name)
	width := checkpoint.Width(dtype)
	n, first := int64(len(dst))/width, at/width
	if int64(len(dst))%width != 0 || at%width != 0 {
		return exitcode.Errorf(exitcode.Internal, "tensor %q: bytes %d to %d are not elements of %s", name, at, at+int64(len(dst)), dtype)
	}
	t := &s.c.list[p.tensor]
	for n > 0 {
		run, from := s.run(t, p, first, n)
		if err := s.elements(p.tensor, from, run, dst[:run*width], dtype); err != nil {
			return err
		}
		dst, first, n = dst[run*width:], first+run, n-run
	}
	return nil
}

// run tells how many of n elements from `first` of a source lie together in the file's
// tensor, and where they begin there.
func (s *store) run(t *tensor, p place, first, n int64) (run, from int64) {
	if t.back == nil {
		return n, p.first*t.width + first
	}
	row, column := first/t.width, first%t.width
	run = min(n, t.width-column)
	return run, (p.first+t.back(row))*t.width + column
}

// elements reads n elements of a file's tensor from `from` as dtype.
func (s *store) elements(i int, from, n int64, dst []byte, dtype string) error {
	found, t := s.files[i], &s.c.list[i]
	if plainNames[found.Type] == dtype && !t.plusOne {
		return s.f.ReadAt(found, dst, from*checkpoint.Width(dtype))
	}
	values := make([]float32, n)
	if err := s.f.Float32(found, values, from); err != nil {
		return err
	}
	if t.plusOne {
		for k := range values {
			values[k]--
		}
	}
	kind := gguf.F32
	for k, name := range plainNames {
		if name == dtype {
			kind = k
		}
	}
	gguf.Encode(dst, kind, values)
	return nil
}
