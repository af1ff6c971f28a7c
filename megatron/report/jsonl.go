package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"math"
	"os"
	"time"

	"monotron/fault"
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

// Step is one line of --log-jsonl: a training step, or an evaluation where
// Validation is set.
type Step struct {
	Time            time.Time         `json:"time"`
	Iteration       int               `json:"iteration"`
	ConsumedSamples int64             `json:"consumed_samples"`
	ConsumedTokens  int64             `json:"consumed_tokens"`
	Loss            map[string]Number `json:"loss"`
	Validation      string            `json:"validation,omitempty"` // "validation" or "test"
	LearningRate    Number            `json:"learning_rate"`
	WeightDecay     Number            `json:"weight_decay"`
	GlobalBatchSize int               `json:"global_batch_size"`
	LossScale       Number            `json:"loss_scale"`
	GradNorm        *Number           `json:"grad_norm,omitempty"`
	ParamsNorm      *Number           `json:"params_norm,omitempty"`
	NumZeros        *Number           `json:"num_zeros,omitempty"`
	Skipped         bool              `json:"skipped,omitempty"`
	Seconds         Number            `json:"seconds"`
	PhaseSeconds    map[string]Number `json:"phase_seconds,omitempty"` // the last rank's
	TokensPerSecond Number            `json:"tokens_per_second"`
	TFLOPs          Number            `json:"tflops_per_device"`
	MFU             Number            `json:"mfu,omitempty"`
	MemoryBytes     int64             `json:"memory_bytes,omitempty"`
}

// MarshalJSON leaves out of an evaluation what only a training step has.
func (s *Step) MarshalJSON() ([]byte, error) {
	type whole Step
	if s.Validation == "" {
		return json.Marshal((*whole)(s))
	}
	return json.Marshal(struct {
		Time            time.Time         `json:"time"`
		Iteration       int               `json:"iteration"`
		ConsumedSamples int64             `json:"consumed_samples"`
		ConsumedTokens  int64             `json:"consumed_tokens"`
		Loss            map[string]Number `json:"loss"`
		Validation      string            `json:"validation"`
	}{s.Time, s.Iteration, s.ConsumedSamples, s.ConsumedTokens, s.Loss, s.Validation})
}

// JSONL appends steps to a file, each on its line the moment it is written.
type JSONL struct {
	file *os.File
	path string
}

// OpenJSONL opens path for appending, so that a resumed run goes on in the same
// file. A last line that a crash cut short is ended first.
func OpenJSONL(path string) (*JSONL, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, fault.Errorf(fault.IO, "--log-jsonl: %w", err)
	}
	j := &JSONL{file, path}
	info, err := file.Stat()
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

func (j *JSONL) fail(err error) error {
	return fault.Errorf(fault.IO, "--log-jsonl %s: %w", j.path, err)
}

// Write appends one step.
func (j *JSONL) Write(s *Step) error {
	line, err := json.Marshal(s)
	if err != nil {
		return fault.Errorf(fault.Internal, "--log-jsonl %s: %w", j.path, err)
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return j.fail(err)
	}
	return nil
}

// Close syncs and closes the file.
func (j *JSONL) Close() error {
	err := j.file.Sync()
	if e := j.file.Close(); err == nil {
		err = e
	}
	if err != nil {
		return j.fail(err)
	}
	return nil
}

// ReadJSONL reads the steps of a file. A resumed run writes some iterations
// again: the later line counts. Lines that are no JSON are left out (a crash may
// cut one short).
func ReadJSONL(r io.Reader) ([]Step, error) {
	var steps []Step
	at := map[[2]any]int{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadBytes('\n')
		var s Step
		if len(line) > 0 && json.Unmarshal(line, &s) == nil {
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
			return nil, fault.Errorf(fault.IO, "reading steps: %w", err)
		}
	}
}
