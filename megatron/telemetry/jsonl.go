package telemetry

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"time"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
)

// Number is a float64 that JSON can carry: inf and nan become null, and null
// becomes nan.
type Number float64

// MarshalJSON writes the shortest text that reads back as the same number.
func (n Number) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(n)) || math.IsInf(float64(n), 0) {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads a number or null.
func (n *Number) UnmarshalJSON(text []byte) error {
	if bytes.Equal(text, []byte("null")) {
		*n = Number(math.NaN())
		return nil
	}
	return json.Unmarshal(text, (*float64)(n))
}

// Entry is one line of --log-jsonl: a training step, or an evaluation where
// Validation is set. docs/logging.md says what each field is.
type Entry struct {
	Time            time.Time         `json:"time"`
	Iteration       int               `json:"iteration"`
	ConsumedSamples int64             `json:"consumed_samples"`
	ConsumedTokens  int64             `json:"consumed_tokens"`
	Loss            map[string]Number `json:"loss"`
	Validation      string            `json:"validation,omitempty"` // the Split
	Samples         []Sample          `json:"samples,omitempty"`
	BitsPerByte     *Number           `json:"bits_per_byte,omitempty"`
	Accuracy        *Number           `json:"token_accuracy,omitempty"` // of an evaluation of a tuning
	*Preferred
	*Rewarded
	*Trained
}

// Preferred are the fields of a preference tuning, of steps and of evaluations, under TRL's names.
type Preferred struct {
	RewardsChosen     *Number `json:"rewards_chosen,omitempty"`
	RewardsRejected   *Number `json:"rewards_rejected,omitempty"`
	RewardsMargins    *Number `json:"rewards_margins,omitempty"`
	RewardsAccuracies *Number `json:"rewards_accuracies,omitempty"`
	LogPsChosen       *Number `json:"logps_chosen,omitempty"`
	LogPsRejected     *Number `json:"logps_rejected,omitempty"`
	KL                *Number `json:"kl,omitempty"`
	NLLLoss           *Number `json:"nll_loss,omitempty"`
	LogOddsChosen     *Number `json:"log_odds_chosen,omitempty"`
}

// Rewarded are the fields of a tuning by rewards (GRPO), under TRL's names.
type Rewarded struct {
	Reward        *Number `json:"reward,omitempty"`
	RewardStd     *Number `json:"reward_std,omitempty"`
	SameRewards   *Number `json:"frac_reward_zero_std,omitempty"`
	Exact         *Number `json:"rewards/exact/mean,omitempty"`
	ExactStd      *Number `json:"rewards/exact/std,omitempty"`
	Pattern       *Number `json:"rewards/pattern/mean,omitempty"`
	PatternStd    *Number `json:"rewards/pattern/std,omitempty"`
	Command       *Number `json:"rewards/command/mean,omitempty"`
	CommandStd    *Number `json:"rewards/command/std,omitempty"`
	MeanLength    *Number `json:"completions/mean_length,omitempty"`
	MinLength     *Number `json:"completions/min_length,omitempty"`
	MaxLength     *Number `json:"completions/max_length,omitempty"`
	MeanEnded     *Number `json:"completions/mean_terminated_length,omitempty"`
	MinEnded      *Number `json:"completions/min_terminated_length,omitempty"`
	MaxEnded      *Number `json:"completions/max_terminated_length,omitempty"`
	Unended       *Number `json:"completions/clipped_ratio,omitempty"`
	LowMean       *Number `json:"clip_ratio/low_mean,omitempty"`
	LowMin        *Number `json:"clip_ratio/low_min,omitempty"`
	HighMean      *Number `json:"clip_ratio/high_mean,omitempty"`
	HighMax       *Number `json:"clip_ratio/high_max,omitempty"`
	RegionMean    *Number `json:"clip_ratio/region_mean,omitempty"`
	LogPApart     *Number `json:"sampling/sampling_logp_difference/mean,omitempty"`
	LogPMostApart *Number `json:"sampling/sampling_logp_difference/max,omitempty"`
	RatioMin      *Number `json:"sampling/importance_sampling_ratio/min,omitempty"`
	RatioMean     *Number `json:"sampling/importance_sampling_ratio/mean,omitempty"`
	RatioMax      *Number `json:"sampling/importance_sampling_ratio/max,omitempty"`
}

// fieldsOf are the fields of T whose names, in its tags, values have; nil: none is.
func fieldsOf[T any](list []Value) *T {
	var fields T
	known, at := false, reflect.ValueOf(&fields).Elem()
	for i := range at.NumField() {
		name, _, _ := strings.Cut(at.Type().Field(i).Tag.Get("json"), ",")
		for _, v := range list {
			if v.Name == name {
				n := Number(v.Value)
				at.Field(i).Set(reflect.ValueOf(&n))
				known = true
			}
		}
	}
	if !known {
		return nil
	}
	return &fields
}

// Trained are the fields that only a training step has.
type Trained struct {
	TrainIters          int               `json:"train_iters,omitempty"`
	LMLoss              *Number           `json:"lm_loss,omitempty"` // the first of Loss, for readers of flat objects
	LearningRate        Number            `json:"learning_rate"`
	WeightDecay         Number            `json:"weight_decay"`
	GlobalBatchSize     int               `json:"global_batch_size"`
	LossScale           Number            `json:"loss_scale"`
	GradNorm            *Number           `json:"grad_norm,omitempty"`
	MTPGradNorm         *Number           `json:"grad_norm_mtp,omitempty"`
	ParamsNorm          *Number           `json:"params_norm,omitempty"`
	NumZeros            *Number           `json:"num_zeros,omitempty"`
	WeightsHash         string            `json:"weights_hash,omitempty"`
	Skipped             bool              `json:"skipped,omitempty"`
	Seconds             Number            `json:"seconds"`
	PhaseSeconds        map[string]Number `json:"phase_seconds,omitempty"` // the last rank's
	SamplesPerSecond    Number            `json:"samples_per_second"`
	TokensPerSecond     Number            `json:"tokens_per_second"`
	RankTokensPerSecond Number            `json:"tokens_per_second_per_rank"`
	TFLOPs              Number            `json:"tflops_per_device"`
	MFU                 Number            `json:"mfu,omitempty"`
	MemoryBytes         int64             `json:"memory_bytes,omitempty"`
	PlannedMemoryBytes  int64             `json:"planned_memory_bytes,omitempty"`
	RankMemoryBytes     []int64           `json:"rank_memory_bytes,omitempty"` // by rank; with each log line
	BalancingLoss       map[string]Number `json:"balancing_loss,omitempty"`
	Experts             []Balance         `json:"experts,omitempty"`
	RankSeconds         []Number          `json:"rank_seconds,omitempty"`     // with log lines, as the next
	StragglerScores     []Number          `json:"straggler_scores,omitempty"` // by rank, against others
	StragglerOwnScores  []Number          `json:"straggler_own_scores,omitempty"`
	MemoryByPurpose     map[string]Number `json:"memory_by_purpose,omitempty"` // bytes, most allocated so far
	PlannedByPurpose    map[string]Number `json:"planned_memory_by_purpose,omitempty"`
	Alerts              []Alert           `json:"alerts,omitempty"`
}

// entry is the line of a step.
func entry(s *Step) *Entry {
	e := &Entry{Time: s.Time, Iteration: s.Iteration, ConsumedSamples: s.ConsumedSamples, ConsumedTokens: s.ConsumedTokens,
		Loss: map[string]Number{}, Validation: s.Split, Samples: s.Written, BitsPerByte: (*Number)(s.BitsPerByte), Accuracy: (*Number)(s.Accuracy),
		Preferred: fieldsOf[Preferred](s.Preference), Rewarded: fieldsOf[Rewarded](s.Preference)}
	for _, loss := range s.Losses {
		e.Loss[loss.Name] = Number(loss.Value)
	}
	if s.Split == "" {
		e.Trained = trained(s)
	}
	return e
}

func trained(s *Step) *Trained {
	tokens := s.perSecond(s.Tokens)
	t := &Trained{
		TrainIters:   s.TrainIters,
		LearningRate: Number(s.LearningRate), WeightDecay: Number(s.WeightDecay), GlobalBatchSize: s.GlobalBatchSize, LossScale: Number(s.LossScale),
		GradNorm: (*Number)(s.GradNorm), MTPGradNorm: (*Number)(s.MTPGradNorm), ParamsNorm: (*Number)(s.ParamsNorm), NumZeros: (*Number)(s.NumZeros), WeightsHash: s.WeightsHash, Skipped: s.Skipped,
		Seconds: Number(s.Elapsed.Seconds()), PhaseSeconds: phases(s), SamplesPerSecond: Number(s.perSecond(s.GlobalBatchSize)),
		TokensPerSecond: Number(tokens), RankTokensPerSecond: Number(tokens / float64(max(1, s.Ranks))),
		TFLOPs: Number(s.TFLOPs()), MFU: Number(s.MFU()), MemoryBytes: s.Memory.MaxAllocated, PlannedMemoryBytes: s.Memory.Planned, BalancingLoss: values(s.MoE), Experts: balances(s), Alerts: s.Alerts,
	}
	if len(s.Losses) > 0 {
		t.LMLoss = (*Number)(&s.Losses[0].Value)
	}
	if s.Line != nil {
		t.RankMemoryBytes = s.Line.RankMemory
		t.MemoryByPurpose, t.PlannedByPurpose = values(s.Line.Purposes), values(s.Line.PlannedPurposes)
		for _, seconds := range s.Line.Work.Ranks() {
			t.RankSeconds = append(t.RankSeconds, Number(seconds))
		}
		if scores := s.Line.Scores; scores != nil {
			t.StragglerScores, t.StragglerOwnScores = numbers(scores.Others), numbers(scores.Past)
		}
	}
	return t
}

func numbers(list []float64) (all []Number) {
	for _, v := range list {
		all = append(all, Number(v))
	}
	return all
}

// values by name; nil where there are none.
func values(list []Value) (all map[string]Number) {
	for _, v := range list {
		if all == nil {
			all = map[string]Number{}
		}
		all[v.Name] = Number(v.Value)
	}
	return all
}

// phases are the seconds of a step's parts, by name.
func phases(s *Step) map[string]Number {
	return map[string]Number{"data": Number(s.Data.Seconds()), "forward": Number(s.Forward.Seconds()),
		"backward": Number(s.Backward.Seconds()), "optimizer": Number(s.Update.Seconds())}
}

// JSONL appends steps to a file, each on its line the moment it is written.
type JSONL struct {
	file *os.File
	path string
	cut  bool // the last line was written in part
}

// handover is how long a run waits for another one to leave its log: a killed run's
// processes may still be ending when its successor starts.
const handover = 3 * time.Second

// OpenJSONL opens path for appending, in a folder that it makes where there is none, so that a resumed run
// continues in the same file. A last line that a crash cut short is ended first. A log that another run writes
// is refused: their steps would mix.
func OpenJSONL(path string) (*JSONL, error) {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	var file *os.File
	if err == nil {
		file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	}
	if err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "--log-jsonl: %w", err)
	}
	j := &JSONL{file: file, path: path}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() && !j.hold() {
		_ = file.Close() // nothing was written
		return nil, exitcode.Errorf(exitcode.IO, "--log-jsonl %s: another run writes to this file; wait until that run has ended, or name another file", path)
	}
	if err == nil {
		info, err = file.Stat() // another run may have written until now
	}
	if err == nil && info.Mode().IsRegular() && info.Size() > 0 {
		last := make([]byte, 1)
		if _, err := file.ReadAt(last, info.Size()-1); err == nil && last[0] != '\n' {
			if _, err := file.WriteString("\n"); err != nil {
				return nil, j.fail(err)
			}
		}
	}
	return j, nil
}

// hold keeps other runs from the log, where the file system can; false: one has it.
func (j *JSONL) hold() bool {
	for end := time.Now().Add(handover); ; time.Sleep(50 * time.Millisecond) {
		quiet, _ := atomicfile.Lock(j.file) // a system without locks holds nobody up
		if !quiet || time.Now().After(end) {
			return !quiet
		}
	}
}

func (j *JSONL) fail(err error) error {
	return exitcode.Errorf(exitcode.IO, "--log-jsonl %s: %w", j.path, err)
}

// Take appends the line of a step.
func (j *JSONL) Take(s *Step) error {
	line, err := json.Marshal(entry(s))
	if err != nil {
		return exitcode.Errorf(exitcode.Internal, "--log-jsonl %s: %w", j.path, err)
	}
	line = append(line, '\n')
	if j.cut {
		line = append([]byte("\n"), line...)
	}
	n, err := j.file.Write(line)
	if err != nil {
		j.cut = j.cut || n > 0
		return j.fail(err)
	}
	j.cut = false
	return nil
}

// Close syncs and closes the file.
func (j *JSONL) Close() error {
	err := j.file.Sync()
	if errors.Is(err, syscall.EINVAL) { // a pipe or device
		err = nil
	}
	if e := j.file.Close(); err == nil {
		err = e
	}
	if err != nil {
		return j.fail(err)
	}
	return nil
}

// ReadJSONL reads the lines of a file. A resumed run writes some iterations
// again: the later line counts. Lines that are not steps are left out (a crash may
// cut one short).
func ReadJSONL(r io.Reader) ([]Entry, error) {
	var steps []Entry
	at := map[[2]any]int{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		var s Entry
		if len(line) > 0 && json.Unmarshal(line, &s) == nil && (s.Trained != nil || s.Validation != "") {
			key := [2]any{s.Iteration, s.Validation}
			if i, seen := at[key]; seen {
				steps[i] = s
			} else {
				at[key] = len(steps)
				steps = append(steps, s)
			}
		}
		if err == io.EOF {
			return steps, nil
		}
		if err != nil {
			return nil, exitcode.Errorf(exitcode.IO, "reading steps: %w", err)
		}
	}
}
