package config

import (
	"path/filepath"

	"monotron/dataset"
	"monotron/internal/exitcode"
	"monotron/megatron/spec"
	"monotron/tokenizer"
)

// Run is the complete configuration of a run, checked: no field waits for a default. It is
// saved with the run as JSON, the part of a step included. Zero means "not requested" where
// the comment says so.
type Run struct {
	Step

	VocabDivisor int // --make-vocab-size-divisible-by
	PaddedVocab  int // --padded-vocab-size; 0: from the tokenizer by VocabDivisor

	Data       dataset.Config
	Tuning     Tuning
	Adapter    Adapter
	Tokenizer  tokenizer.Config
	Checkpoint Checkpoint
	Log        Log
	Watch      Watch

	Device     string // auto, cpu, cuda, ref
	CPUThreads int    // 0: all cores
	NoPlan     bool   // memory is not counted before the run
	Graphs     bool   // the steady parts of a step are enqueued as CUDA graphs

	MicroBatchSize            int
	GlobalBatchSize           int
	RampupBatchSize           []int  // start, increment, samples; nil: constant
	StepBatchSizeSchedule     string // "0:768 250B:1536", thresholds in tokens; "": constant
	DecreaseBatchSizeIfNeeded bool

	TrainIters       int // 0: by TrainSamples
	TrainSamples     int // 0: by TrainIters
	IterationsToSkip []int
	KillSwitch       string // file whose existence ends the run; "": none

	EvalInterval        int
	EvalIters           int
	EvalTrainIters      int // of the training set, for an estimate next to the validation loss
	EvalGlobalBatchSize int
	EvalMicroBatchSize  int
	SkipTrain           bool
	FullValidation      bool
	EvalAtStart         bool // before the first step of a new run
	Patience            int  // evaluations without a lower loss after which training ends; 0: it does not

	ExitInterval     int // 0: none
	ExitDurationMins int // 0: none
	TrainSeconds     int // of steps; 0: no limit

	DataloaderType string // single, cyclic
	NoDataSharding bool   // cyclic: ranks draw from all samples
	NumWorkers     int

	SamplePrompt []string // texts to continue at every evaluation
	SampleTokens int      // length of each continuation

	Flags map[string][]string // as given: what --use-checkpoint-args takes from a checkpoint
}

// Checkpoint says what is saved and loaded.
type Checkpoint struct {
	Save, Load    string // folders; "": no saving, no loading
	Pretrained    string // loaded, without optimizer, where Load has nothing yet
	SaveInterval  int    // 0: at the end alone
	KeepEvery     int    // --save-retain-interval; 0: all
	KeepLast      int    // newest checkpoints kept; 0: all
	KeepBest      bool   // that of the lowest validation loss is kept too
	Format        string // of saving: native, torch, torch_dist; loading recognises each
	Step          int    // iteration to load; 0: the latest
	Resume        bool   // continue from Save, where it holds something, whatever is said of loading
	Remote        string // s3:// URL to which what is saved in Save is copied; "": none. A run's setup takes it from Save
	LocalDir      string // --save-local-dir; "": in the user's cache
	SaveOnLoad    string // folder for a checkpoint of the run's initial state; "": none
	NoSaveOptim   bool
	AdapterOnly   bool // checkpoints hold the adapter without its base
	NoTokenizer   bool // --no-save-tokenizer-assets
	NoLoadOptim   bool
	Finetune      bool // weights only, iteration 0
	Upcycle       bool // the weights are a dense model's, and become a mixture's
	UseArgs       bool // --use-checkpoint-args
	ExitOnMissing bool
	AllowMissing  bool // --allow-missing-load
	Async         bool

	MemoryInterval  int // steps between checkpoints in the memory of hosts; 0: none
	ReplicationJump int // a copy of each rank's is on the host of the rank so far behind; 0: none is

	UpcyclingGranularity int // experts that make the dense MLP once
}

// MayBeMissing reports whether a run starts from random weights if there is nothing at Load: --allow-missing-load says
// so, or Load is the folder of Save, which the first start of a run makes.
func (c *Checkpoint) MayBeMissing() bool {
	return c.AllowMissing || c.Load != "" && filepath.Clean(c.Load) == filepath.Clean(c.Save)
}

// Log says what is reported where.
type Log struct {
	Format         string // of notes: text, json
	Level          string // of notes, the lowest that is logged
	Interval       int
	Throughput     bool
	ParamsNorm     bool
	NumZeros       bool
	MemoryInterval int  // 0: only after the first steps
	Memory         bool // by purpose
	TimingLevel    int
	TimingOption   string // max, minmax, all
	Extras         bool   // a second line a step: dt, dtf, dtb, tokens/s, MFU

	TensorboardDir           string // "": none
	TensorboardInterval      int
	TensorboardQueue         int
	TimersToTensorboard      bool
	MemoryToTensorboard      bool
	ValidationPPLTensorboard bool
	WorldSizeToTensorboard   bool
	LossScaleToTensorboard   bool
	MoEPerLayer              bool
	Exchanges                bool    // each micro-batch's sent and received tokens (--log-moe-exchanges)
	ImbalanceLimit           float64 // times an even part, from which an expert's tokens are reported; 0: never

	RunName          string // for people; "": made from model and data
	RunNotes         string // for people; "": none
	JSONL            string // file; "": none
	MLflowURI        string // of a tracking server; "": none
	MLflowExperiment string
	OTLPEndpoint     string  // of a collector; "": none
	Result           string  // file for the run's outcome as one JSON object; "": none
	WeightsHash      int     // steps between hashes of the weights; 0: none
	Fingerprints     string  // folder for fingerprints of the steps' values; "": none
	FingerprintN     int     // steps between them
	AlertCommand     string  // what alerts are handed to; "": none
	Dashboard        string  // address for the page; "": none
	Price            float64 // of an hour of the run, for the page; 0: not known
	MetricsAddr      string  // address for Prometheus; "": none
	Profile          string  // Chrome trace file; "": none
	ProfileStart     int     // first iteration recorded
	ProfileEnd       int     // first iteration no longer recorded
}

// Watch says how a run is watched, and what goes wrong in it on purpose.
type Watch struct {
	Folder        string   // for flight records, the verdict and recorded steps; "": none are kept
	TimeoutFactor float64  // of the longest stay in a phase, until a longer one ends the run; 0: none does
	StallSeconds  int      // without any rank doing anything, until that is a stall
	Stragglers    bool     // a remark on the slowest rank of each phase with the log lines
	Inject        []string // see mpu/health/inject
	FewerRanks    bool     // than the run began with: a fault may be of one that is gone
}

// Validates reports whether the run measures a validation set, if it has one.
func (c *Run) Validates() bool { return c.EvalIters > 0 || c.FullValidation }

// SetVocab fills the vocabulary sizes once the tokenizer is built: size ids,
// padded so that every tensor-parallel rank holds the same number of rows.
func (c *Run) SetVocab(size int) error {
	if size <= 0 {
		return exitcode.Errorf(exitcode.Usage, "the tokenizer has %d ids; give --vocab-size or the files of a tokenizer", size)
	}
	padded := spec.PadVocab(size, c.VocabDivisor, max(c.Layout.TP, c.Leaves))
	if c.PaddedVocab > 0 {
		padded = c.PaddedVocab
		switch {
		case padded < size:
			return exitcode.Errorf(exitcode.Usage, "--padded-vocab-size %d is smaller than the tokenizer's %d ids; raise it", padded, size)
		case padded%max(1, c.Leaves) != 0:
			return exitcode.Errorf(exitcode.Usage, "--padded-vocab-size %d is not a multiple of --reduction-leaves %d; change one", padded, c.Leaves)
		case padded%max(1, c.Layout.TP) != 0:
			return exitcode.Errorf(exitcode.Usage, "--padded-vocab-size %d is not a multiple of --tensor-model-parallel-size %d; change one", padded, c.Layout.TP)
		}
	}
	c.Model.VocabSize, c.Model.PaddedVocabSize = size, padded
	return nil
}
