package llmc

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
)

var le = binary.LittleEndian

// modelName takes the step out of a model file's name.
var modelName = regexp.MustCompile(`^model_(\d{8})\.bin$`)

// Open opens a model file, or the newest complete step of a folder of them, with
// the state files next to it.
func Open(path string, o checkpoint.OpenOptions) (checkpoint.Source, error) {
	file, err := choose(path, o.Step)
	if err != nil {
		return nil, err
	}
	r := &reader{path: file}
	src, err := r.open()
	if err != nil {
		_ = r.close() // opened for reading
		return nil, err
	}
	return src, nil
}

// choose is the model file that path and step mean.
func choose(path string, step int64) (string, error) {
	st, err := os.Stat(path)
	if err != nil {
		return "", notThere(path, err)
	}
	if !st.IsDir() {
		return path, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", exitcode.With(exitcode.IO, err)
	}
	// The latest step with a DONE file, else the latest; a step that is asked for; else model.bin.
	var steps, done []int64
	for _, e := range entries {
		m := modelName.FindStringSubmatch(e.Name())
		if m == nil {
			continue
		}
		n, _ := strconv.ParseInt(m[1], 10, 64) // eight digits
		steps = append(steps, n)
		if _, err := os.Stat(filepath.Join(path, doneName(n))); err == nil {
			done = append(done, n)
		}
	}
	if step >= 0 {
		steps, done = []int64{step}, nil
	}
	if len(done) > 0 {
		steps = done
	}
	if len(steps) == 0 {
		return filepath.Join(path, "model.bin"), nil
	}
	sort.Slice(steps, func(a, b int) bool { return steps[a] < steps[b] })
	return filepath.Join(path, fmt.Sprintf("model_%08d.bin", steps[len(steps)-1])), nil
}

func doneName(step int64) string { return fmt.Sprintf("DONE_%08d", step) }

func notThere(path string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return exitcode.Errorf(exitcode.NoInput, "%s does not exist", path)
	}
	return exitcode.With(exitcode.IO, err)
}

// reader opens the files of one checkpoint.
type reader struct {
	path  string
	files []*os.File
}

func (r *reader) close() error {
	var errs []error
	for _, f := range r.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// header opens a file and reads its 256 integers.
func (r *reader) header(path string, magic int32) (f *os.File, h []int32, size int64, err error) {
	if f, err = exitcode.Open(path); err != nil {
		return nil, nil, 0, err
	}
	r.files = append(r.files, f)
	st, err := f.Stat()
	if err != nil {
		return nil, nil, 0, exitcode.With(exitcode.IO, err)
	}
	raw := make([]byte, headerBytes)
	if _, err := io.ReadFull(f, raw); err != nil {
		if st.Size() >= headerBytes {
			return nil, nil, 0, exitcode.Errorf(exitcode.IO, "%s: reading llm.c's header of %d bytes: %w", path, headerBytes, err)
		}
		return nil, nil, 0, exitcode.Errorf(exitcode.BadData, "%s: %d bytes are too few for llm.c's header of %d", path, st.Size(), headerBytes)
	}
	h = make([]int32, headerInts)
	for i := range h {
		h[i] = int32(le.Uint32(raw[4*i:]))
	}
	if h[0] != magic {
		return nil, nil, 0, exitcode.Errorf(exitcode.BadData, "%s: byte 0: the magic number is %d, but llm.c's is %d", path, h[0], magic)
	}
	return f, h, st.Size(), nil
}

func (r *reader) open() (checkpoint.Source, error) {
	// The header: 256 integers, magic, version, sizes.
	f, h, size, err := r.header(r.path, modelMagic)
	if err != nil {
		return nil, err
	}
	dtype := map[int32]string{versionF32: "F32", versionBF16: "BF16"}[h[1]]
	if dtype == "" {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: byte 4: version %d is not supported; versions 3 (f32) and 5 (bf16), which have a padded vocabulary, can be read", r.path, h[1])
	}
	m, err := shape(r.path, h)
	if err != nil {
		return nil, err
	}
	l := newLayout(m)
	if int64(h[7]) != l.vp {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: byte 28: the padded vocabulary has %d rows, but llm.c pads %d ids to %d rows", r.path, h[7], m.VocabSize, l.vp)
	}
	// The file has exactly the parameters of such a model.
	width := checkpoint.Width(dtype)
	if want := headerBytes + l.total*width; size != want {
		return nil, exitcode.Errorf(exitcode.BadData, "%s has %d bytes, but its header requires %d: the file is truncated, or its header is wrong", r.path, size, want)
	}
	mp, err := hf.NewLinearMapping(m)
	if err != nil {
		return nil, err
	}
	// Values; with a step in the name also the optimizer's state, from files next to it.
	kinds := []hf.Kind{{Prefix: checkpoint.Model, Store: &store{path: r.path, layout: l, dtype: dtype, read: flat(f, headerBytes, width)}}}
	info := checkpoint.Info{Format: checkpoint.LLMC, Path: r.path, Family: hf.GPT2, Model: m, SeqLength: m.MaxPositions}
	state := checkpoint.State{}
	if found := modelName.FindStringSubmatch(filepath.Base(r.path)); found != nil {
		state.Iteration, _ = strconv.ParseInt(found[1], 10, 64) // eight digits
		more, err := r.state(l, &state)
		if err != nil {
			return nil, err
		}
		kinds = append(kinds, more...)
	}
	return hf.NewMapped(info, state, mp, kinds, r.close)
}

// shape is GPT-2 of the header's sizes.
func shape(path string, h []int32) (*spec.Model, error) {
	const limit = 1 << 24
	for i, what := range map[int]string{2: "positions", 3: "token ids", 4: "layers", 5: "heads", 6: "channels"} {
		if h[i] < 1 || h[i] > limit || i == 4 && h[i] > 10_000 {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: byte %d: the number of %s is %d, which is not possible", path, 4*i, what, h[i])
		}
	}
	heads, c := int(h[5]), int(h[6])
	if c%heads != 0 {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: the number of heads, %d, does not divide the %d channels", path, heads, c)
	}
	m := &spec.Model{NumLayers: int(h[4]), HiddenSize: c, FFNHiddenSize: 4 * c, NumAttentionHeads: heads, NumQueryGroups: heads, KVChannels: c / heads,
		VocabSize: int(h[3]), PaddedVocabSize: int(h[3]), MaxPositions: int(h[2]), Context: int(h[2]), Position: spec.PositionLearned, RotaryPercent: 1,
		Normalization: spec.LayerNorm, NormEpsilon: 1e-5, Activation: spec.GeluTanh, LinearBias: true, QKVBias: true, Tied: true, WindowLeft: -1,
		InitStd: 0.02, EmbeddingInitStd: 0.02}
	if h[gelu] == geluErf {
		m.Activation = spec.GeluErf
	}
	return m, nil
}

// flat reads elements of the row of all parameters that starts at offset of f.
func flat(f *os.File, offset, width int64) func(p span, dst []byte, at int64) error {
	return func(p span, dst []byte, at int64) error {
		return readAt(f, dst, offset+p.at*width+at)
	}
}

func readAt(f *os.File, dst []byte, at int64) error {
	if len(dst) == 0 {
		return nil
	}
	if _, err := f.ReadAt(dst, at); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return exitcode.Errorf(exitcode.IO, "%s: byte %d: %w", f.Name(), at, err)
	}
	return nil
}

// state adds moments and main parameters, where state files are next to the model.
func (r *reader) state(l *layout, s *checkpoint.State) ([]hf.Kind, error) {
	first := stateName(r.path, s.Iteration, 0)
	if _, err := os.Stat(first); err != nil {
		return nil, nil
	}
	// Rank 0's file says how many ranks there are, and must be of this step.
	f, h, size, err := r.header(first, stateMagic)
	if err != nil {
		return nil, err
	}
	ranks := int64(h[2])
	if h[1] != 1 {
		return nil, exitcode.Errorf(exitcode.BadData, "%s has version %d; it must have version 1", first, h[1])
	}
	if ranks < 1 || ranks > 1<<16 || h[3] != 0 || int64(h[10]) != s.Iteration {
		return nil, exitcode.Errorf(exitcode.BadData, "%s is the state of rank %d of %d at step %d; it must be the state of rank 0 at step %d", first, h[3], ranks, h[10], s.Iteration)
	}
	// Without its DONE file a checkpoint may be incomplete.
	done := filepath.Join(filepath.Dir(r.path), doneName(s.Iteration))
	if _, err := os.Stat(done); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s is missing: llm.c writes this file when a checkpoint is complete, so %s may be incomplete; move the state files away to load only the weights", done, first)
	}
	// Arrays of the complete buffer or of a rank's share, one after the other: m, v, and main parameters.
	prefixes := []string{checkpoint.ExpAvg, checkpoint.ExpSq}
	if h[4] != 0 {
		prefixes = append(prefixes, checkpoint.Main)
	}
	share, files := l.total, []*os.File{f}
	if ranks > 1 && size < headerBytes+4*l.total*int64(len(prefixes)) { // ZeRO: each rank has its share
		share = l.total / ranks
		if files, err = r.shares(f, s.Iteration, ranks); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		st, err := f.Stat()
		if err != nil {
			return nil, exitcode.With(exitcode.IO, err)
		}
		if st.Size() < headerBytes+4*share*int64(len(prefixes)) {
			return nil, exitcode.Errorf(exitcode.BadData, "%s has %d bytes, too few for a header and %d arrays of %d f32 values: the file is truncated, or from another model", f.Name(), st.Size(), len(prefixes), share)
		}
	}
	// Each array is a store of its own over the files.
	s.Extra = map[string]json.RawMessage{checkpoint.ExtraAdamSteps: json.RawMessage(strconv.FormatInt(s.Iteration, 10))}
	var kinds []hf.Kind
	for i, prefix := range prefixes {
		read := flat(f, headerBytes+int64(i)*4*share, 4)
		if len(files) > 1 {
			read = shared(files, headerBytes+int64(i)*4*share)
		}
		kinds = append(kinds, hf.Kind{Prefix: prefix, Store: &store{path: first, layout: l, dtype: "F32", read: read}})
	}
	return kinds, nil
}

func stateName(model string, step int64, rank int) string {
	return filepath.Join(filepath.Dir(model), fmt.Sprintf("state_%08d_%05d.bin", step, rank))
}

// shares opens every rank's state file.
func (r *reader) shares(first *os.File, step, ranks int64) ([]*os.File, error) {
	files := []*os.File{first}
	for rank := 1; rank < int(ranks); rank++ {
		f, h, _, err := r.header(stateName(r.path, step, rank), stateMagic)
		if err != nil {
			return nil, err
		}
		if int64(h[2]) != ranks || int(h[3]) != rank || int64(h[10]) != step {
			return nil, exitcode.Errorf(exitcode.BadData, "%s is the state of rank %d of %d at step %d; it must be that of rank %d of %d at step %d", f.Name(), h[3], h[2], h[10], rank, ranks, step)
		}
		files = append(files, f)
	}
	return files, nil
}

// shared reads parameters of which each rank holds the same share of every
// layer of every tensor.
func shared(files []*os.File, offset int64) func(p span, dst []byte, at int64) error {
	ranks := int64(len(files))
	return func(p span, dst []byte, at int64) error {
		share := 4 * (p.width / ranks) // bytes of the tensor that a rank has
		for len(dst) > 0 {
			rank := ranks
			if share > 0 {
				rank = at / share
			}
			if rank >= ranks {
				return exitcode.Errorf(exitcode.BadData, "%s: a tensor of %d elements cannot be divided evenly among %d ranks", files[0].Name(), p.width, ranks)
			}
			n := min(int64(len(dst)), (rank+1)*share-at)
			if err := readAt(files[rank], dst[:n], offset+4*(p.at/ranks)+at-rank*share); err != nil {
				return err
			}
			dst, at = dst[n:], at+n
		}
		return nil
	}
}

// store is one array of all parameters.
type store struct {
	path   string
	layout *layout
	dtype  string
	read   func(p span, dst []byte, at int64) error
}

func (s *store) Info(name string) (string, []int64, bool) {
	p, ok := s.layout.spans[name]
	return s.dtype, p.shape, ok
}

func (s *store) ReadAt(name string, dst []byte, at int64) error {
	return s.read(s.layout.spans[name], dst, at)
}

func (s *store) Where(name string) string { return fmt.Sprintf("%s: tensor %q", s.path, name) }
