package torchdist

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/megatron"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// source is a checkpoint of Megatron's sharded format.
type source struct {
	dir    string
	bytes  *bytesOf
	index  *index
	common *pickle.Dict
	files  []*pickle.File
	args   megatron.Args
	model  *spec.Model
	layout checkpoint.Layout
	state  checkpoint.State
	notes  []string

	shapes map[string][]int64 // of the model's tensors, without prefix
	list   []checkpoint.Tensor
	parts  map[string]*entry
}

type entry struct {
	checkpoint.Tensor
	parts []checkpoint.Part
	boxes []mpu.Piece // of parts that were put together here
	files []string    // that have them
}

// Open opens a save folder or one of its iter_ folders.
// Errors: exitcode.NoInput where there is none, exitcode.BadData with file and tensor
// where it is not complete.
func Open(path string, o checkpoint.OpenOptions) (checkpoint.Source, error) {
	dir := filepath.Clean(path)
	if !marked(dir) {
		var err error
		if dir, err = checkpoint.SavedFolder(path, o.Step); err != nil {
			return nil, err
		}
	}
	s := &source{dir: dir, bytes: &bytesOf{dir: dir, files: map[string]*os.File{}, opened: map[location]*pickle.Tensor{}},
		shapes: map[string][]int64{}, parts: map[string]*entry{}}
	if err := s.open(o); err != nil {
		_ = s.Close() // the error before it is the one to tell
		return nil, err
	}
	return s, nil
}

func marked(dir string) bool {
	for _, name := range []string{checkpoint.DistMarker, checkpoint.DistMetadata} {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

func (s *source) open(o checkpoint.OpenOptions) (err error) {
	if err = readMarker(s.dir); err != nil {
		return err
	}
	if s.index, err = readIndex(s.dir); err != nil {
		return err
	}
	if err = s.readCommon(); err != nil {
		return err
	}
	for _, t := range checkpoint.Expected(s.model) {
		if o.KeepPadding && checkpoint.IsVocabulary(t.Name) {
			t.Shape[0] = int64(s.model.PaddedVocabSize)
		}
		s.shapes[t.Name] = t.Shape
	}
	// One of two names of the same bytes is enough: Transformer Engine's, and that of Megatron's own modules.
	seen := map[location]bool{}
	for _, x := range s.index.tensors {
		if len(x.chunks) > 0 && seen[x.chunks[0].location] {
			continue
		}
		for _, c := range x.chunks {
			seen[c.location] = true
		}
		if err := s.addStored(x); err != nil {
			return exitcode.Errorf(codeOr(err), "%s: tensor %q: %w", s.dir, x.key, err)
		}
	}
	if err := s.readOptimizer(); err != nil {
		return exitcode.Errorf(codeOr(err), "%s: optimizer: %w", s.dir, err)
	}
	return s.readRNG()
}

// readCommon finds what is not sharded: common.pt, or the object of newer ones.
func (s *source) readCommon() error {
	var root pickle.Value
	// A file, or an object of the metadata.
	path := filepath.Join(s.dir, commonName)
	if _, err := os.Stat(path); err == nil {
		f, err := pickle.Open(path)
		if err != nil {
			return err
		}
		s.files = append(s.files, f)
		root = f.Root
	} else if where, ok := s.index.objects["common_state/shard_0_1"]; ok {
		path = filepath.Join(s.dir, where.file)
		if root, err = s.bytes.object(where); err != nil {
			return err
		}
	} else {
		return exitcode.Errorf(exitcode.BadData, "%s is missing, and .metadata has no common_state, so the args of the checkpoint are missing", path)
	}
	var ok bool
	if s.common, ok = root.(*pickle.Dict); !ok {
		return exitcode.Errorf(exitcode.BadData, "%s: the common state has type %s; it must be a dict", path, pickle.TypeName(root))
	}
	// Arguments, model, layout and progress.
	v, _ := s.common.Get("args")
	var err error
	if s.args, err = megatron.AsArgs(v); err != nil {
		return exitcode.Errorf(exitcode.BadData, "%s: %w; without the args of the checkpoint the shape of the model is not known", path, err)
	}
	if s.model, err = s.args.Model(); err != nil {
		return exitcode.Errorf(exitcode.BadData, "%s: %w", path, err)
	}
	s.layout, s.state = s.args.Layout(), megatron.ReadState(s.common, s.args)
	return nil
}

// stateKey is the optimizer's state in the model's shapes.
var stateKey = regexp.MustCompile(`^(?:chained_\d+\.)?optimizer\.state\.(fp32_param|param|exp_avg|exp_avg_sq)\.(.+)$`)

var kindOf = map[string]string{"fp32_param": checkpoint.Main, "param": checkpoint.Main, "exp_avg": checkpoint.ExpAvg, "exp_avg_sq": checkpoint.ExpSq}

// addStored lists our tensors that a stored one holds.
func (s *source) addStored(x *stored) error {
	prefix, key := checkpoint.Model, x.key
	if m := stateKey.FindStringSubmatch(x.key); m != nil {
		prefix, key = kindOf[m[1]], m[2]
	} else if strings.HasPrefix(key, "optimizer.") || strings.HasPrefix(key, "chained_") {
		return nil // flat buffers, see optimizer.go
	}
	k, ok := megatron.ParseKey(key)
	if !ok {
		return nil
	}
	if prefix == checkpoint.Main && s.valuesAreF32() {
		return nil // the values themselves
	}
	return s.split(prefix, k, x)
}

// valuesAreF32 reports runs whose main parameters are the values.
func (s *source) valuesAreF32() bool { return !s.args.Bool("bf16") && !s.args.Bool("fp16") }

// split takes a stacked tensor apart, layer by layer and expert by expert.
func (s *source) split(prefix string, k megatron.Key, x *stored) error {
	layers, experts, lead := int64(1), int64(1), 0
	if k.Layer == megatron.Stacked {
		layers, lead = x.shape[0], 1
	}
	if k.Expert == megatron.Stacked {
		if len(x.shape) <= lead {
			return fmt.Errorf("the shape %v has no dimension for the experts", x.shape)
		}
		experts, lead = x.shape[lead], lead+1
	}
	shape := x.shape[lead:]
	const most = 1 << 20 // tensors that one becomes
	if len(shape) == 0 || layers > int64(s.model.NumLayers) || experts > most/layers {
		return fmt.Errorf("shape %v does not begin with the dimensions of %d layers and the model's experts", x.shape, s.model.NumLayers)
	}
	for l := range layers {
		for e := range experts {
			layer, expert := k.Layer, k.Expert
			if k.Layer == megatron.Stacked {
				layer = int(l)
			}
			if k.Expert == megatron.Stacked {
				expert = int(e)
			}
			if err := s.addSlice(prefix+k.Name(layer, expert), x, shape, lead, k, l, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// addSlice adds the tensor at one layer and expert of a stacked one.
func (s *source) addSlice(name string, x *stored, shape []int64, lead int, k megatron.Key, layer, expert int64) error {
	// at: the slice's index in the leading dimensions, [layer] [expert].
	at := make([]int64, 0, 2)
	if k.Layer == megatron.Stacked {
		at = append(at, layer)
	}
	if k.Expert == megatron.Stacked {
		at = append(at, expert)
	}
	t := checkpoint.Tensor{Name: name, DType: x.dtype, Shape: shape}
	// Tables are stored with padding rows.
	for _, prefix := range kinds {
		if bare, ok := strings.CutPrefix(name, prefix); ok && checkpoint.IsVocabulary(bare) {
			want := s.shapes[bare]
			if len(shape) != 2 || want == nil || want[0] > shape[0] {
				return fmt.Errorf("the shape is %v, but the checkpoint's args require %v", shape, want)
			}
			t.Shape = []int64{want[0], shape[1]} // without padding
		}
	}
	if s.parts[name] != nil {
		return fmt.Errorf("%s is stored twice", name)
	}
	e := &entry{Tensor: t}
	// Of each stored box that has the slice, the stretch that is in it: boxes are contiguous, leading index first.
	for _, c := range x.chunks {
		from, inside := int64(0), true
		for d, n := range at {
			inside = inside && n >= c.box.From[d] && n < c.box.From[d]+c.box.Size[d]
			from = from*c.box.Size[d] + n - c.box.From[d]
		}
		if !inside {
			continue
		}
		if !slices.Contains(e.files, c.location.file) {
			e.files = append(e.files, c.location.file)
		}
		box := mpu.Piece{From: c.box.From[lead:], Size: c.box.Size[lead:]}
		e.parts = append(e.parts, checkpoint.Part{Box: box, ReadAt: s.bytes.reader(x, c, from*box.Len()*checkpoint.Width(x.dtype))})
	}
	s.parts[name] = e
	s.list = append(s.list, t)
	return nil
}

var kinds = []string{checkpoint.Model, checkpoint.Main, checkpoint.ExpAvg, checkpoint.ExpSq}

var rngKey = regexp.MustCompile(`^rng_state/shard_(\d+)\.(\d+)_(\d+)\.(\d+)$`)

// readRNG keeps the generators of each rank.
func (s *source) readRNG() error {
	rng := &megatron.RNG{Layout: s.layout, States: map[megatron.Rank]pickle.Value{}}
	for key, where := range s.index.objects {
		m := rngKey.FindStringSubmatch(key)
		if m == nil {
			continue
		}
		v, err := s.bytes.object(where)
		if err != nil {
			return err
		}
		pp, _ := strconv.Atoi(m[1])
		tp, _ := strconv.Atoi(m[2])
		rng.States[megatron.Rank{TP: tp, PP: pp}] = v
	}
	s.state.RNG = rng
	return nil
}

func (s *source) Info() checkpoint.Info {
	return checkpoint.Info{Format: checkpoint.MegatronTorchDist, Path: s.dir, Model: s.model, SeqLength: s.args.Int("seq_length", 0), Layout: s.layout, Tokenizer: s.args.Tokenizer(s.dir), Specials: s.args.Specials(), Notes: slices.Clone(s.notes)}
}

// Origin names the files that have parts of a tensor.
func (s *source) Origin(name string) string {
	where := s.dir
	if e := s.parts[name]; e != nil && len(e.files) > 0 {
		where = filepath.Join(s.dir, strings.Join(e.files, ", "))
	}
	return fmt.Sprintf("%s: tensor %q", where, name)
}

func (s *source) Tensors() []checkpoint.Tensor { return s.list }
func (s *source) State() checkpoint.State      { return s.state }

func (s *source) Read(name string, box mpu.Piece, dst []byte) error {
	e := s.parts[name]
	if e == nil || !checkpoint.Inside(box, e.Shape) || int64(len(dst)) != box.Len()*checkpoint.Width(e.DType) {
		return exitcode.Errorf(exitcode.Internal, "internal error: %s: a buffer of %d bytes does not fit the part from %v of size %v of tensor %q; report this, and include the command line", s.dir, len(dst), box.From, box.Size, name)
	}
	return checkpoint.ReadParts(e.parts, checkpoint.Width(e.DType), box, dst)
}

func (s *source) Close() error {
	err := s.bytes.close()
	for _, f := range s.files {
		_ = f.Close() // opened for reading
	}
	return err
}
