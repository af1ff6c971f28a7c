package gguf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

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
	config, said, err := settle(f)
	if err != nil {
		return nil, err
	}
	c, err := newCorrespondence(config.Model, said.family)
	if err != nil {
		return nil, exitcode.With(exitcode.BadData, fmt.Errorf("%s: %w", f.Path, err))
	}
	s := &store{f: f, c: c, layers: config.Model.NumLayers, ahead: int(said.ahead)}
	if err := s.check(); err != nil {
		return nil, err
	}
	m := *config.Model
	m.Context = config.MaxPositions
	info := checkpoint.Info{Format: checkpoint.GGUF, Path: f.Path, Family: said.family.hf, Model: &m, Specials: ggvocab.Specials(f)}
	if ggvocab.Has(f) {
		info.Tokenizer = tokenizer.Config{Type: "HuggingFaceTokenizer", Model: f.Path}
	}
	if s.quantised != "" {
		info.Notes = append(info.Notes, "weights are dequantized to f32: "+s.quantised)
	}
	if s.ahead > 0 {
		info.Notes = append(info.Notes, fmt.Sprintf("%d layers of multi-token prediction (nextn_predict_layers) are left out, as in transformers", s.ahead))
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
	kept      kept

	layers, ahead int // of the model; those behind, which are not read
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
			wrong = append(wrong, fmt.Errorf("%s: the metadata describes a model with the tensor %q, but the file does not have this tensor", s.f.Path, t.name))
		case !sameShape(found.Shape(), t.shape):
			wrong = append(wrong, fmt.Errorf("%s: tensor %q has the shape %v, but the metadata requires the shape %v", s.f.Path, t.name, found.Shape(), t.shape))
		}
		s.files[i] = found
	}
	for _, t := range s.f.Tensors {
		if !used[t.Name] && !s.further(t.Name) {
			wrong = append(wrong, fmt.Errorf("%s: tensor %q is not part of the model that the metadata describes; ignoring this tensor would change the results", s.f.Path, t.Name))
		}
	}
	if len(wrong) > 0 {
		return exitcode.With(exitcode.BadData, hf.Some(wrong))
	}
	s.choose()
	return nil
}

// further reports a tensor of a layer that predicts further tokens.
func (s *store) further(name string) bool {
	layer, err := strconv.Atoi(layerOf(name))
	return err == nil && strings.HasPrefix(name, "blk.") && layer >= s.layers && layer < s.layers+s.ahead
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
	if s.c.list[p.pieces[0][0]].full {
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
	return fmt.Sprintf("%s: tensor %q", s.f.Path, s.c.list[p.pieces[0][0]].name)
}

// request is a run of elements of a source that somebody reads.
type request struct {
	dst      []byte
	first, n int64
	dtype    string
	width    int64 // bytes of an element
}

// part is the bytes of dst for the elements [from, to) of the source.
func (r *request) part(from, to int64) []byte {
	return r.dst[(from-r.first)*r.width : (to-r.first)*r.width]
}

// ReadAt is a hf.Store's: complete elements of Hugging Face's tensor from byte at.
func (s *store) ReadAt(name string, dst []byte, at int64) error {
	where, ok := s.c.where[name]
	if !ok {
		return exitcode.Errorf(exitcode.Internal, "internal error: %s has no tensor %q; report this, and include the command line", s.f.Path, name)
	}
	dtype, _, _ := s.Info(name)
	width := checkpoint.Width(dtype)
	if int64(len(dst))%width != 0 || at%width != 0 {
		return exitcode.Errorf(exitcode.Internal, "internal error: tensor %q: bytes %d to %d do not contain complete elements of type %s; report this, and include the command line", name, at, at+int64(len(dst)), dtype)
	}
	r := &request{dst, at / width, int64(len(dst)) / width, dtype, width}
	for _, k := range where.pieces {
		t := &s.c.list[k[0]]
		p, read := &t.pieces[k[1]], s.readTurned
		if p.plain() {
			read = s.readPlain
		}
		if err := read(r, k, t, p); err != nil {
			return err
		}
	}
	return nil
}

// readPlain reads what lies in a piece, in rows as the source has them.
func (s *store) readPlain(r *request, k [2]int, t *tensor, p *piece) error {
	low, high := max(r.first, p.at*p.sourceWidth), min(r.first+r.n, (p.at+p.rows)*p.sourceWidth)
	for e := low; e < high; {
		row, column := e/p.sourceWidth-p.at, e%p.sourceWidth
		if t.back == nil && t.columnBack == nil {
			return s.elements(k[0], (p.first+row)*t.width+column, high-e, r.part(e, high), r.dtype)
		}
		if t.back != nil {
			row = t.back(row)
		}
		end := min(high, e+t.width-column)
		if err := s.row(r, k[0], t, p.first+row, column, e, end); err != nil {
			return err
		}
		e = end
	}
	return nil
}

// row reads elements [e, end) of a source, which are those of a row from column on.
func (s *store) row(r *request, i int, t *tensor, row, column, e, end int64) error {
	if t.columnBack == nil {
		return s.elements(i, row*t.width+column, end-e, r.part(e, end), r.dtype)
	}
	all := make([]byte, t.width*r.width)
	if err := s.elements(i, row*t.width, t.width, all, r.dtype); err != nil {
		return err
	}
	for ; e < end; e, column = e+1, column+1 {
		copy(r.part(e, e+1), all[t.columnBack(column)*r.width:])
	}
	return nil
}

// readTurned reads what lies in a piece whose rows are columns of the source, or not next to each other there.
func (s *store) readTurned(r *request, k [2]int, t *tensor, p *piece) error {
	across, down, corner := int64(1), p.step*p.sourceWidth, p.at*p.sourceWidth
	if p.turned {
		across, down, corner = p.sourceWidth, p.step, p.from*p.sourceWidth+p.at
	}
	if corner >= r.first+r.n || corner+(p.rows-1)*down+(p.width-1)*across < r.first {
		return nil
	}
	all, err := s.piece(r, k, t, p)
	if err != nil {
		return err
	}
	for c := range p.width {
		// Of this column's rows those that are asked for.
		at := corner + c*across
		low, high := max(0, (r.first-at+down-1)/down), min(p.rows, (r.first+r.n-at+down-1)/down)
		for row := low; row < high; row++ {
			e := at + row*down
			copy(r.part(e, e+1), all[(row*p.width+c)*r.width:])
		}
	}
	return nil
}

// keptBytes are of pieces that are kept for the next request of their source.
const keptBytes = 64 << 20

// kept are pieces in the order of their reading.
type kept struct {
	mu    sync.Mutex
	order [][2]int
	raw   map[[2]int][]byte
	bytes int
}

// piece reads a piece as the file has it.
func (s *store) piece(r *request, k [2]int, t *tensor, p *piece) ([]byte, error) {
	c := &s.kept
	c.mu.Lock()
	defer c.mu.Unlock()
	if all, ok := c.raw[k]; ok {
		return all, nil
	}
	all := make([]byte, p.rows*p.width*r.width)
	if err := s.elements(k[0], p.first*t.width, p.rows*p.width, all, r.dtype); err != nil {
		return nil, err
	}
	for len(c.order) > 0 && c.bytes+len(all) > keptBytes {
		c.bytes -= len(c.raw[c.order[0]])
		delete(c.raw, c.order[0])
		c.order = c.order[1:]
	}
	if c.raw == nil {
		c.raw = map[[2]int][]byte{}
	}
	c.order, c.raw[k], c.bytes = append(c.order, k), all, c.bytes+len(all)
	return all, nil
}

// elements reads n elements of a file's tensor from `from` as dtype.
func (s *store) elements(i int, from, n int64, dst []byte, dtype string) error {
	found, t := s.files[i], &s.c.list[i]
	if plainNames[found.Type] == dtype && t.decode == nil {
		return s.f.ReadAt(found, dst, from*checkpoint.Width(dtype))
	}
	values := make([]float32, n)
	if err := s.f.Float32(found, values, from); err != nil {
		return err
	}
	if t.decode != nil {
		for k, x := range values {
			values[k] = t.decode(x)
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
