package checkpoint

import (
	"encoding/json"
	"maps"
	"slices"

	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/tokenizer"
)

// Format names a way of storing checkpoints.
type Format string

// The formats, as `convert --to` spells them.
const (
	Native            Format = "native"
	MegatronTorch     Format = "torch" // this and the next as Megatron's --ckpt-format spells them
	MegatronTorchDist Format = "torch_dist"
	HF                Format = "hf"
	NanoGPT           Format = "nanogpt"
	LLMC              Format = "llmc"
	GGUF              Format = "gguf"
)

// FormatOf is the format of a name, which may be an older one.
func FormatOf(name string) Format {
	switch name {
	case "megatron-torch":
		return MegatronTorch
	case "megatron-torch_dist":
		return MegatronTorchDist
	}
	return Format(name)
}

// Prefixes of stored names.
const (
	Model  = "model."
	Main   = "optimizer.main."
	ExpAvg = "optimizer.exp_avg."
	ExpSq  = "optimizer.exp_avg_sq."
)

// Tensor is a global tensor of a checkpoint.
type Tensor struct {
	Name  string  // with prefix
	DType string  // as safetensors spells it
	Shape []int64 // at least one dimension, each at least 1
}

// Bytes is the tensor's size.
func (t Tensor) Bytes() int64 { return Width(t.DType) * Volume(t.Shape) }

// Info is what a checkpoint says of itself.
type Info struct {
	Format Format
	Path   string // the folder or file that holds it
	Family string // Hugging Face's model_type, where the format says one; "": not said

	Model     *spec.Model      // complete, as files allow
	SeqLength int              // 0: not said
	Tokenizer tokenizer.Config // with the files that the checkpoint keeps, where it does; zero: not said
	// Specials are ids of special tokens by the names that config.json has for them, such as
	// eos_token_id, which may be several; nil: not said.
	Specials map[string][]int32
	Layout   Layout   // it was written by; zero: the format has none
	Notes    []string // for a person: oddities, what was ignored

	Quantization string // of the weights, which are read as floats: nf4, int8, fp8, mxfp4; "": none
}

// Source is an open checkpoint.
type Source interface {
	Info() Info
	// Tensors lists everything, in an order that reads the files front to back
	// where that is possible.
	Tensors() []Tensor
	// Read fills dst, row-major and exactly as long as the box, with the box of a
	// listed tensor (Piece.Local is not read). It may be called from several
	// goroutines. Errors name file and tensor.
	Read(name string, box mpu.Piece, dst []byte) error
	State() State
	Close() error
}

// Twice is implemented by a Source whose files hold some tensors a second time, such as
// tied embeddings on the first and the last pipeline stage.
type Twice interface {
	// Copies shows those tensors as they are in the second location. It is closed with
	// the Source.
	Copies() Source
}

// MegatronLM is the Version of a State that Megatron-LM wrote.
const MegatronLM = "Megatron-LM"

// State is what a run needs in addition to its tensors to resume bit for bit. Only the
// package that wrote a raw part (json.RawMessage) interprets it.
type State struct {
	Iteration     int64 `json:"iteration"`
	ConsumedTrain int64 `json:"consumed_train_samples"`
	ConsumedValid int64 `json:"consumed_valid_samples"`
	SkippedTrain  int64 `json:"skipped_train_samples"`

	Seed    uint64 `json:"seed"`    // random numbers are counted, so this is all of their state
	Version string `json:"version"` // of the program that wrote

	Config json.RawMessage `json:"config,omitempty"` // of the run: training.Config
	// Learning rate and weight decay, with Megatron's names (optimizer.SchedulerState).
	Scheduler json.RawMessage            `json:"scheduler,omitempty"`
	Scaler    json.RawMessage            `json:"scaler,omitempty"` // loss scale, with Megatron's names (optimizer.ScalerState)
	Extra     map[string]json.RawMessage `json:"extra,omitempty"`

	RNG any `json:"-"` // Megatron's generator states (*megatron.RNG); only its formats give and take them
}

// Keys of State.Extra.
const (
	ExtraAdamSteps = "optimizer_steps" // integer: updates made
	ExtraFLOPs     = "megatron_flops"  // number: num_floating_point_operations_so_far
	ExtraArgs      = "megatron_args"   // object: Megatron's arguments as found; enumerations as their names
	ExtraOrder     = "sample_order"    // object: the layout that the order of the samples was drawn for (training.sampleOrder)
)

// ExtraBase is a key of State.Extra: an object that says where the weights are that the checkpoint does not hold
// (all.Base).
const ExtraBase = "base"

// extraSpecials is a key of State.Extra: Info's Specials.
const extraSpecials = "special_tokens"

// Specials are the ids of special tokens that s keeps (Info.Specials); nil: none, or not readable.
func (s *State) Specials() (ids map[string][]int32) {
	if json.Unmarshal(s.Extra[extraSpecials], &ids) != nil {
		return nil
	}
	for name, list := range ids {
		if slices.ContainsFunc(list, func(id int32) bool { return id < 0 }) {
			delete(ids, name)
		}
	}
	return ids
}

// KeepSpecials makes ids those that s keeps; nil: it stays as it is.
func (s *State) KeepSpecials(ids map[string][]int32) error {
	if ids == nil {
		return nil
	}
	text, err := json.Marshal(ids)
	if err != nil {
		return err
	}
	s.Extra = maps.Clone(s.Extra)
	if s.Extra == nil {
		s.Extra = map[string]json.RawMessage{}
	}
	s.Extra[extraSpecials] = text
	return nil
}

// OpenOptions choose what a Source shows.
type OpenOptions struct {
	Step        int64    // iteration of a save folder; negative: the latest
	KeepPadding bool     // the vocabulary's padding rows are part of its tensors
	MTP         bool     // layers of multi-token prediction are read of a format whose readers usually leave them out (hf)
	NoBase      bool     // one that holds an adapter alone is opened without the weights of its base
	Over        []string // paths of the checkpoints that this one is opened as the base of
}

// Layout is how a checkpoint is cut. 0 counts as 1.
type Layout struct {
	TP, PP, VP, EP, ETP, DP int
	FirstStage, LastStage   int   // layers of the first and last pipeline stage; 0: even
	StageLayers             []int // layers of each pipeline stage; nil: even, or as above
	DistributedOptimizer    bool
}

// Complete replaces sizes that are not given: 0 becomes 1, an ETP of 0 becomes TP.
func (l Layout) Complete() Layout {
	for _, n := range []*int{&l.TP, &l.PP, &l.VP, &l.EP, &l.DP} {
		*n = max(1, *n)
	}
	if l.ETP == 0 {
		l.ETP = l.TP
	}
	return l
}

// Watched is implemented by a Source that passes the stored bytes to the caller as it reads
// them, while they are in the processor's cache.
type Watched interface {
	Source
	// ReadWatched is Read that also hands stored bytes to see, complete elements, from
	// several goroutines: all of the box, once or more, and maybe others of the tensor.
	ReadWatched(name string, box mpu.Piece, dst []byte, see func(raw []byte)) error
}

// ReadWatched reads a box of any Source and passes all of it to see.
func ReadWatched(src Source, name string, box mpu.Piece, dst []byte, see func(raw []byte)) error {
	if w, ok := src.(Watched); ok {
		return w.ReadWatched(name, box, dst, see)
	}
	const cached = 1 << 20
	width := int64(len(dst)) / box.Len()
	return byRows(box, cached/width, func(sub mpu.Piece, at int64) error {
		part := dst[at*width : (at+sub.Len())*width]
		if err := src.Read(name, sub, part); err != nil {
			return err
		}
		see(part)
		return nil
	})
}
