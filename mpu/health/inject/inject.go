// Package inject makes faults on purpose: what --inject asks for. Tests use it, and
// people who want to see a fault before one occurs by itself.
//
// A fault is KIND:key=value:..., for example kill:rank=3:step=7:phase=backward. Keys:
// rank (0), step (any), phase (forward), and what the kind takes.
package inject

import (
	"slices"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
	"monotron/mpu/health"
)

// Kinds of faults.
const (
	Kill     = "kill"     // the rank's process is killed as by kill -9
	Exit     = "exit"     // it leaves without a word; code=1
	Stop     = "stop"     // its process is stopped as by kill -STOP
	Sleep    = "sleep"    // it does nothing; seconds=3600. Without a step: at every step
	Mismatch = "mismatch" // its next collective differs; what=size, or order: it calls one more
	NaN      = "nan"      // the residual stream gets a NaN; layer=0 (before the first layer)
	Corrupt  = "corrupt"  // a byte of its part of the checkpoint is changed, once that is saved
	Slow     = "slow"     // each of its collectives begins late; ms=50
	FullDisk = "diskfull" // its next write of a checkpoint finds the disk full
)

// kinds are the keys that each kind takes in addition to rank, step and phase.
var kinds = map[string][]string{Kill: nil, Stop: nil, Exit: {"code"}, Sleep: {"seconds"}, Mismatch: {"what"}, NaN: {"layer"}, Corrupt: nil, Slow: {"ms"}, FullDisk: nil}

// Fault is one thing that is to go wrong.
type Fault struct {
	Kind    string
	Rank    int
	Step    int64 // 0: any
	Phase   health.Phase
	Code    int     // exit
	Seconds float64 // sleep; slow: of each collective
	What    string  // mismatch
	Layer   int     // nan
}

// Parse reads the values of --inject, each one fault or several with commas between.
func Parse(values []string) (list []Fault, err error) {
	for _, value := range values {
		for _, text := range strings.Split(value, ",") {
			f, err := parse(strings.TrimSpace(text))
			if err != nil {
				return nil, err
			}
			list = append(list, f)
		}
	}
	return list, nil
}

func parse(text string) (Fault, error) {
	words := strings.Split(text, ":")
	f := Fault{Kind: words[0], Phase: health.Forward, Code: 1, Seconds: 3600, What: "size"}
	own, known := kinds[f.Kind]
	if !known {
		return f, exitcode.Errorf(exitcode.Usage, "--inject %s: %q is not a fault; choose kill, exit, stop, sleep, mismatch, nan, corrupt, slow or diskfull", text, f.Kind)
	}
	switch f.Kind {
	case Slow:
		f.Seconds = 0.05
	case Corrupt, FullDisk:
		f.Phase = health.Save
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		if !slices.Contains([]string{"rank", "step", "phase"}, key) && !slices.Contains(own, key) {
			return f, exitcode.Errorf(exitcode.Usage, "--inject %s: %q is not a key of %s; its keys are rank, step, phase%s", text, key, f.Kind, strings.Join(append([]string{""}, own...), ", "))
		}
		if !f.set(key, value) {
			return f, exitcode.Errorf(exitcode.Usage, "--inject %s: %q is not a valid value of %s", text, value, key)
		}
	}
	return f, nil
}

// set reads one key; false: the value cannot be.
func (f *Fault) set(key, value string) (ok bool) {
	number, err := strconv.ParseFloat(value, 64)
	ok = err == nil && number >= 0 && number < 1e9
	switch key {
	case "rank":
		f.Rank = int(number)
	case "step":
		f.Step = int64(number)
	case "code":
		f.Code = int(number)
		ok = ok && f.Code < 256
	case "seconds":
		f.Seconds = number
	case "ms":
		f.Seconds = number / 1000
	case "layer":
		f.Layer = int(number)
	case "phase":
		f.Phase, ok = health.ParsePhase(value)
	case "what":
		f.What, ok = value, value == "size" || value == "order"
	}
	return ok
}
