package watch

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"monotron/fault"
	"monotron/mpu/comm/rendezvous"
)

// Kinds of verdicts.
const (
	Death     = "death"      // a rank has ended without a word
	Silence   = "silence"    // a rank does not answer: stopped, or its host is gone
	Stall     = "stall"      // a rank does not come where the others wait for it
	Mismatch  = "mismatch"   // ranks of a group call different things
	NonFinite = "non-finite" // a loss or gradient is not finite
	Failure   = "error"      // a rank has failed with a message
)

// Verdict is why a run ended before it was done.
type Verdict struct {
	Kind     string     `json:"kind"`
	Rank     int        `json:"rank"` // to blame; -1: nobody in particular
	Code     fault.Code `json:"exit_code"`
	Text     string     `json:"text"`
	Phase    string     `json:"phase,omitempty"` // of that rank
	Step     int64      `json:"step,omitempty"`
	Host     string     `json:"host,omitempty"`
	PID      int        `json:"pid,omitempty"`
	Signal   int        `json:"signal,omitempty"`
	LastCall *Call      `json:"last_call,omitempty"` // of that rank
	Stack    string     `json:"stack,omitempty"`     // of that rank's goroutine
	Ranks    []Standing `json:"ranks,omitempty"`
	Time     time.Time  `json:"time"`

	Layer   string  `json:"layer,omitempty"` // non-finite: where first
	Tensor  string  `json:"tensor,omitempty"`
	Samples []int64 `json:"samples,omitempty"` // of the training data, as consumed
	Dump    string  `json:"dump,omitempty"`    // folder that replay takes
}

// Standing is what a rank was at, in words.
type Standing struct {
	Rank int    `json:"rank"`
	At   string `json:"at"`
}

func (v *Verdict) Error() string { return v.Text }

// Err is the verdict as an error with its exit code.
func (v *Verdict) Err() error { return fault.With(v.Code, v) }

// VerdictFile is where a run's verdict lies.
func VerdictFile(folder string) string { return filepath.Join(folder, "verdict.json") }

// Write puts the verdict into the run's folder, whole or not at all.
func (v *Verdict) Write(folder string) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fault.With(fault.Internal, err)
	}
	f, err := os.CreateTemp(folder, ".tmp-verdict-*") // its owner's alone
	if err != nil {
		return fault.With(fault.IO, err)
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), VerdictFile(folder))
	}
	if err != nil {
		os.Remove(f.Name()) // it is of no use
		return fault.Errorf(fault.IO, "the verdict cannot be written to %s: %w", folder, err)
	}
	return nil
}

// ReadVerdict reads the verdict of a run's folder.
func ReadVerdict(folder string) (*Verdict, error) {
	text, err := fault.ReadFile(VerdictFile(folder), 16<<20)
	if err != nil {
		return nil, err
	}
	v := &Verdict{}
	if err := json.Unmarshal(text, v); err != nil {
		return nil, fault.Errorf(fault.BadData, "%s: %w", VerdictFile(folder), err)
	}
	return v, nil
}

// Fresh makes a run's folder, its owner's alone, and moves what an earlier run has
// left there to a folder of its own inside (before_1 and so on).
func Fresh(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fault.Errorf(fault.IO, "--run-folder %s: %w", folder, err)
	}
	var left []string
	for _, pattern := range []string{"verdict.json", "flight_*.bin", "nonfinite_*"} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return fault.With(fault.Internal, err)
		}
		left = append(left, found...)
	}
	if len(left) == 0 {
		return nil
	}
	for n := 1; ; n++ {
		old := filepath.Join(folder, "before_"+itoa(n))
		err := os.Mkdir(old, 0o700)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		for _, path := range left {
			if err == nil {
				err = os.Rename(path, filepath.Join(old, filepath.Base(path)))
			}
		}
		return fault.With(fault.IO, err)
	}
}

// itself begins the error of a rank that has failed with a message.
var itself = regexp.MustCompile(`^rank (\d+): `)

// verdictOf reads a verdict out of the error that ended a run.
func verdictOf(err error) *Verdict {
	var own *Verdict
	if errors.As(err, &own) {
		copied := *own
		return &copied
	}
	v := &Verdict{Kind: Failure, Rank: -1, Code: fault.CodeOf(err), Text: err.Error(), Time: time.Now()}
	if m := itself.FindStringSubmatch(v.Text); m != nil {
		v.Rank, _ = strconv.Atoi(m[1]) // digits
	}
	var told *rendezvous.Verdict
	if errors.As(err, &told) {
		v.Rank = told.Rank
		switch {
		case itself.MatchString(told.Text):
		case strings.Contains(told.Text, "has died"):
			v.Kind = Death
		case strings.Contains(told.Text, "has been silent"):
			v.Kind = Silence
		}
	}
	if differing.MatchString(v.Text) || strings.Contains(v.Text, "where it is sent") {
		v.Kind = Mismatch
	}
	return v
}
