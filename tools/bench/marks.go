package bench

import (
	"fmt"
	"strings"
	"time"

	"monotron/csrc/device"
	"monotron/tools/internal/command"
)

// Marks of a step's ops: attention over long sequences as a share of the instruction peak; other ops as a share
// of its bound, which is the larger of two times: to copy its bytes, and to
// do it with its data in the caches.
const (
	attentionMark = 0.70
	longSequence  = 2048 // tokens from which attention has a mark: of less its diagonal is too large a part
	otherMark     = 0.90
)

// warmth is the least time of an op's calls with the data in the caches, by op and shape.
type warmth map[[2]string]time.Duration

// add is an Observer. It spoils the step's results.
func (w warmth) add(c device.Call) {
	key := [2]string{c.Op.String(), c.Shape}
	took := c.Warm()
	if best, ok := w[key]; took > 0 && (!ok || took < best) {
		w[key] = took
	}
}

// fill sets what each op's bound is.
func (w warmth) fill(ops []opSum, copies float64) {
	for i := range ops {
		o := &ops[i]
		warm, ok := w[[2]string{o.Op, o.Shape}]
		if !ok || o.FLOPs > 0 {
			continue
		}
		o.Warm = o.Calls * warm.Seconds()
		o.OfBound = max(o.Warm, o.copying(copies)) / o.Seconds
	}
}

// copying is how long the step's bytes of the op take to copy.
func (o opSum) copying(copies float64) float64 { return o.Bytes * o.Seconds / copies }

// belowMarks are the ops that miss their marks, a line each that says why.
func (r *result) belowMarks() (lines []string) {
	for _, o := range r.Ops {
		switch {
		case strings.HasPrefix(o.Op, "attention") && o.FLOPs > 0 && r.InstructionPeak > 0:
			if of := o.FLOPs / r.InstructionPeak; r.SeqLength >= longSequence && of < attentionMark {
				lines = append(lines, fmt.Sprintf("%s %s: %.0f%% of the instructions' peak, mark %.0f%%: exponentials, masks and the full blocks on the diagonal do not count as operations", o.Op, o.Shape, 100*of, 100*attentionMark))
			}
		case o.OfBound > 0 && o.OfBound < otherMark:
			lines = append(lines, fmt.Sprintf("%s %s: %.0f%% of its bound, mark %.0f%%: %s", o.Op, o.Shape, 100*o.OfBound, 100*otherMark, o.why(r.CopyBandwidth)))
		}
	}
	return lines
}

// handedOut is a call so short that waking a thread for its tiles counts.
const handedOut = 50e-6

// why says what an op's call spends its time on.
func (o opSum) why(copies float64) string {
	call, warm, copying := o.Seconds/o.Calls, o.Warm/o.Calls, o.copying(copies)/o.Calls
	parts := fmt.Sprintf("a call takes %s, %s with its data in the caches, %s to copy its bytes", micros(call), micros(warm), micros(copying))
	switch {
	case call < handedOut:
		return parts + ": the call is so short that distributing it to the threads takes much of the time"
	case call < 1.1*(warm+copying):
		return parts + ": computing and copying overlap only in part"
	}
	return parts + ": lines that are written are read first, memory is not read in order, or other programs ran"
}

func micros(seconds float64) string { return fmt.Sprintf("%.0f us", 1e6*seconds) }

func (r *result) printMarks(to *command.Printer) {
	for i, line := range r.belowMarks() {
		if i == 0 {
			to.Printf("\nBelow their marks:\n")
		}
		to.Printf("%s\n", line)
	}
}
