package failure

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"monotron/internal/exitcode"
)

// Kind is what has happened.
type Kind string

// The kinds; docs/failures.md says who sees, who decides and who writes each.
const (
	Death     Kind = "death"      // a rank has ended without a word
	Silence   Kind = "silence"    // a rank does not answer: stopped, or its host is gone
	Stall     Kind = "stall"      // a rank does not come where the others wait for it
	Mismatch  Kind = "mismatch"   // ranks of a group call different things
	NonFinite Kind = "non-finite" // a loss or gradient is not finite
	Own       Kind = "error"      // a rank has failed with a message of its own
	Other     Kind = "elsewhere"  // a rank has given up because another has; never the last word
)

// Verdict is why a run ended before it was done.
type Verdict struct {
	Kind   Kind          `json:"kind"`
	Rank   int           `json:"rank"` // to blame; -1: nobody in particular
	Code   exitcode.Code `json:"exit_code"`
	Text   string        `json:"text"`
	Phase  string        `json:"phase,omitempty"` // of that rank
	Step   int64         `json:"step,omitempty"`
	Host   string        `json:"host,omitempty"`
	PID    int           `json:"pid,omitempty"`
	Signal int           `json:"signal,omitempty"`
	Stack  string        `json:"stack,omitempty"` // of that rank's goroutine
	Ranks  []Standing    `json:"ranks,omitempty"`
	Time   time.Time     `json:"time"`

	LastCall json.RawMessage `json:"last_call,omitempty"` // of that rank, as its record has it

	Starts int `json:"starts,omitempty"` // that ended so, one after the other, when launch gave up; 0: it has not

	Differing *Differing `json:"differing,omitempty"` // mismatch: the call on which ranks differ

	Layer   string  `json:"layer,omitempty"` // non-finite: where first
	Tensor  string  `json:"tensor,omitempty"`
	Samples []int64 `json:"samples,omitempty"` // of the training data, as consumed
	Dump    string  `json:"dump,omitempty"`    // folder that replay takes

	cause error // in the process that has seen it
}

// Standing is what a rank was at, in words.
type Standing struct {
	Rank int    `json:"rank"`
	At   string `json:"at"`
}

// Differing is a collective of a group that two of its ranks have called as different
// things.
type Differing struct {
	Group   string `json:"group"` // its name
	Members []int  `json:"members"`
	Seq     int64  `json:"seq"`
	Ranks   [2]int `json:"ranks"`
}

// Fact is an error that knows more than its text.
type Fact interface {
	error
	Fill(v *Verdict)
}

func (v *Verdict) Error() string { return v.Text }
func (v *Verdict) Unwrap() error { return v.cause }

// Err is the verdict as an error with its exit code.
func (v *Verdict) Err() error { return exitcode.With(v.Code, v) }

// Of is the verdict on a rank that err has ended; -1 where the rank is not known. An
// error that is a verdict already stays that one.
func Of(rank int, err error) *Verdict {
	var made *Verdict
	if errors.As(err, &made) {
		copied := *made
		return &copied
	}
	code := exitcode.CodeOf(err)
	v := &Verdict{Kind: Own, Rank: rank, Code: code, Text: exitcode.With(code, err).Error(), Time: time.Now(), cause: err}
	var known Fact
	if errors.As(err, &known) {
		known.Fill(v)
	}
	if v.Rank >= 0 {
		v.Text = fmt.Sprintf("rank %d: %s", v.Rank, v.Text)
	}
	return v
}

// By reports whether it is a rank's own failure that it reports, not another's.
func (v *Verdict) By(rank int) bool { return v.Rank == rank && v.Kind != Other }

// longestText is how much of a text is passed on.
const longestText = 8 << 10

// Brief is the verdict as it is passed on: without what every rank was at.
func (v *Verdict) Brief() *Verdict {
	b := *v
	b.Ranks, b.Stack, b.LastCall, b.cause = nil, "", nil, nil
	b.Text = cut(v.Err().Error())
	return &b
}

func cut(text string) string {
	if len(text) <= longestText {
		return text
	}
	return text[:longestText] + " ..."
}
