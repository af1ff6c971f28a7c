package checkpoint

import "context"

// WriteOptions say how a checkpoint is written.
type WriteOptions struct {
	Layout    Layout
	Family    string // of hf, where several could hold the model; "": the source's or the natural one
	Tokenizer string // folder whose tokenizer files are copied next to the weights (hf); "": those that src names
	// NoTokenizerFiles: a checkpoint names its tokenizer, and keeps no copies of its files.
	NoTokenizerFiles bool
	// OfRun: the run that saves to the folder writes, which has its lock; the tracker then names what is
	// written. false: it is an Addition.
	OfRun bool
	// Quantization is how weights are stored: GGUF's f32, f16, bf16 or q8_0, Hugging Face's nf4;
	// "": GGUF as most of src's are, Hugging Face each as it is.
	Quantization string
	DoubleQuant  bool  // with nf4: scales are quantised too
	ShardSize    int64 // bytes of one file, for formats with shards; 0: the format's custom
	Release      bool  // Megatron: a `release` folder without iteration
	// VocabDivisor: Megatron: the vocabulary is padded to a multiple of this times
	// the tensor-parallel ranks; 0: as the run that src is of had it, else 128.
	VocabDivisor int
	// TransformerImpl: Megatron: local or transformer_engine; "": as the run that src
	// is of had it, else local.
	TransformerImpl string
	// GroupedExperts: Megatron: as a run with --moe-grouped-gemm has them; false: as the run
	// that src is of had it, else one by one.
	GroupedExperts bool
}

// Written is what a Writer did.
type Written struct {
	Path  string // the folder or file that holds the checkpoint
	Files int
	Bytes int64
	Notes []string // for a person: what the format cannot hold
}

// AddNote adds a note, if there is one.
func (w *Written) AddNote(note string) {
	if note != "" {
		w.Notes = append(w.Notes, note)
	}
}

// Writer makes a checkpoint of one format at path from everything src lists.
// Main parameters, moments and state that the format cannot hold are left out with
// a note. Until it is complete and on disk it has a temporary name next to path; on
// an error or when ctx ends nothing is left. A path that exists is refused,
// except a save folder, which gets one more iteration (Addition).
type Writer func(ctx context.Context, path string, src Source, o WriteOptions) (Written, error)

// Opener opens a checkpoint of one format: a save folder, one iteration's
// folder, a model's folder or a file, as the format has them.
type Opener func(path string, o OpenOptions) (Source, error)
