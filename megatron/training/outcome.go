package training

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/telemetry"
	"monotron/mpu/comm/failure"
)

// Outcome is what --result-json says of a run: one object, written at its end, whatever that
// is. Fields that are not known are left out.
type Outcome struct {
	ExitCode  exitcode.Code `json:"exit_code"`
	Reason    string        `json:"exit_reason"` // a word for the code: Reasons
	Message   string        `json:"message,omitempty"`
	Problems  []Problem     `json:"problems,omitempty"` // of a command line: all of them
	Version   string        `json:"version"`
	Seconds   float64       `json:"seconds"`       // from start to end of the process
	StepTime  float64       `json:"train_seconds"` // of this process's steps, waiting for their data included
	Iteration int           `json:"iteration"`     // trained so far, those before a resume counted
	Target    int           `json:"train_iters,omitempty"`
	Samples   int64         `json:"consumed_samples"`
	Tokens    int64         `json:"consumed_tokens"`

	Loss           *telemetry.Number `json:"loss,omitempty"` // nats a token, of the last step
	ValidationLoss *telemetry.Number `json:"validation_loss,omitempty"`
	ValidationBits *telemetry.Number `json:"validation_bits_per_byte,omitempty"`
	TestLoss       *telemetry.Number `json:"test_loss,omitempty"`
	TestBits       *telemetry.Number `json:"test_bits_per_byte,omitempty"`
	TokensPerSec   *telemetry.Number `json:"tokens_per_second,omitempty"` // of this process's steps
	WeightsHash    string            `json:"weights_hash,omitempty"`      // at the end

	began  time.Time
	tokens int64 // of this process's steps
}

// Problem is one of the errors of a run.
type Problem struct {
	Code    exitcode.Code `json:"code"`
	Message string        `json:"message"`
}

// reasons are the words for exit codes.
var reasons = map[exitcode.Code]string{
	exitcode.Done: "done", exitcode.Usage: "usage", exitcode.BadData: "bad_data", exitcode.NoInput: "no_input",
	exitcode.Internal: "internal", exitcode.IO: "io", exitcode.Again: "stopped",
}

// NewOutcome begins to measure the process's time.
func NewOutcome() *Outcome { return &Outcome{Version: Version, began: time.Now()} }

// Take is the outcome as a sink of the last rank.
func (o *Outcome) Take(s *telemetry.Step) error {
	var loss *telemetry.Number
	if len(s.Losses) > 0 {
		loss = (*telemetry.Number)(&s.Losses[0].Value)
	}
	switch s.Split {
	case telemetry.Validation:
		o.ValidationLoss, o.ValidationBits = loss, (*telemetry.Number)(s.BitsPerByte)
	case telemetry.Test:
		o.TestLoss, o.TestBits = loss, (*telemetry.Number)(s.BitsPerByte)
	case "":
		o.Loss = loss
		o.Iteration, o.Target, o.Samples, o.Tokens = s.Iteration, s.TrainIters, s.ConsumedSamples, s.ConsumedTokens
		o.StepTime += s.Elapsed.Seconds()
		o.tokens += int64(s.Tokens)
		rate := telemetry.Number(float64(o.tokens) / o.StepTime)
		o.TokensPerSec = &rate
	}
	return nil
}

// Close does nothing: Write comes at the end of the process.
func (o *Outcome) Close() error { return nil }

// Begin removes the object of an earlier run at path, so that a process that is killed leaves none. It makes the folder
// of path and writes into it, so that a run does not train for hours before it finds out that Write fails.
func (o *Outcome) Begin(path string) error {
	if path == "" {
		return nil
	}
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
		return exitcode.Errorf(exitcode.IO, "--result-json %s is a folder or device; name a file", path)
	}
	if st, err := os.Lstat(path); err == nil && st.Mode().IsRegular() {
		_ = os.Remove(path) // what follows reports what is wrong with the folder
	}
	folder := filepath.Dir(path)
	err := os.MkdirAll(folder, 0o777)
	if err == nil {
		err = writable(folder)
	}
	if err != nil {
		return exitcode.Errorf(exitcode.IO, "--result-json %s cannot be written: %w", path, err)
	}
	return nil
}

// Write writes the object of a run that ended in err, which may be nil, to path; a run
// without --result-json has none.
func (o *Outcome) Write(path string, err error) error {
	if path == "" {
		return err
	}
	o.Seconds = time.Since(o.began).Seconds()
	o.ended(err)
	return errors.Join(err, o.write(path))
}

// ended takes how the run ended.
func (o *Outcome) ended(err error) {
	o.ExitCode = exitcode.CodeOf(err)
	if o.Reason = reasons[o.ExitCode]; o.ExitCode > bySignal {
		o.Reason = "signal"
	}
	if err != nil {
		o.Message = err.Error()
		o.Problems = problemsOf(err)
	}
}

// bySignal and a signal's number are the code of a run of which that has ended a rank.
const bySignal exitcode.Code = 128

func (o *Outcome) write(path string) error {
	text, err := json.MarshalIndent(o, "", "  ")
	if err == nil {
		err = atomicfile.WriteFile(path, 0o666, append(text, '\n'))
	}
	if err != nil {
		return exitcode.Errorf(exitcode.IO, "--result-json: %w", err)
	}
	return nil
}

// Settle has the files of a run's log say err, which is how its launcher sees that the run ended. The process of the
// last rank wrote there how it ended itself, as by the loss of another rank; if it was killed it wrote nothing, and what
// is known of the run's progress comes from the verdict. o began when the launcher did.
func (o *Outcome) Settle(c *config.Log, err error) error {
	if err == nil {
		return nil
	}
	step := int64(0) // the one under way
	if v := new(failure.Verdict); errors.As(err, &v) {
		step = v.Step
	}
	return errors.Join(err, o.settleResult(c.Result, step, err), settleAbout(c.JSONL, step, err))
}

// settleResult does so for --result-json. An object with the same code, which may list several problems, stays.
func (o *Outcome) settleResult(path string, step int64, err error) error {
	if path == "" {
		return nil
	}
	written := &Outcome{}
	text, failed := exitcode.ReadFile(path, longestOutcome)
	if failed == nil {
		failed = json.Unmarshal(text, written)
	}
	switch {
	case failed != nil:
		written = o
		written.Iteration, written.Seconds = int(max(0, step-1)), time.Since(o.began).Seconds()
	case written.ExitCode == exitcode.CodeOf(err):
		return nil
	}
	written.ended(err)
	return written.write(path)
}

// settleAbout does so for the file next to --log-jsonl, which the run's page reads.
func settleAbout(log string, step int64, err error) error {
	if log == "" {
		return nil
	}
	about, failed := telemetry.ReadAbout(log)
	if about == nil || failed != nil || about.Ended != nil && about.Ended.Code == exitcode.CodeOf(err) {
		return nil // the run wrote none, or said it itself
	}
	about.Ended = &telemetry.Ended{Time: time.Now(), Iteration: step, Code: exitcode.CodeOf(err), Text: err.Error()}
	if err := about.Write(log); err != nil {
		return fmt.Errorf("--log-jsonl: %w", err)
	}
	return nil
}

// longestOutcome is the most bytes of an object that are read.
const longestOutcome = 1 << 20

// problemsOf are the errors that err lists, one at least.
func problemsOf(err error) (all []Problem) {
	code := exitcode.CodeOf(err)
	var list interface{ Unwrap() []error }
	if !errors.As(err, &list) {
		return []Problem{{code, err.Error()}}
	}
	for _, one := range list.Unwrap() {
		all = append(all, Problem{code, one.Error()})
	}
	return all
}

// finalHash adds the hash of the weights to the outcome of a run whose ranks have all ended
// in the same way.
func (r *Run) finalHash() error {
	if r.Config.Log.Result == "" {
		return nil
	}
	hash, err := r.weightsHash()
	if r.rank.Last() {
		r.Outcome.WeightsHash, r.Outcome.Iteration = hash, int(r.Engine.Iteration)
	}
	return err
}
