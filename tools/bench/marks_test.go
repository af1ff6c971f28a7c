package bench

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"monotron/tools/internal/command"
)

// Claim: an op is compared with the larger of copying and computing, one that misses its mark has a
// line with the reason that its times tell, and products have none.
func TestMarks(t *testing.T) {
	op := func(name string, call, bytes float64) opSum {
		return opSum{Op: name, Shape: "8", Calls: 2, Seconds: 2 * call, Bytes: bytes / call}
	}
	r := &result{SeqLength: longSequence, InstructionPeak: 1e9, CopyBandwidth: 1e9}
	r.Ops = []opSum{
		op("copied", 1e-3, 950e3),   // 0.95 of the copy
		op("computed", 1e-3, 100e3), // 0.92 from the caches
		op("both", 1e-3, 500e3),     // half each
		op("lost", 1e-3, 100e3),     // neither
		op("short", 20e-6, 1e3),     // 0.1
		op("not timed", 1e-3, 1),    // by a device that cannot tell
		{Op: "matmul", Shape: "8", Calls: 1, Seconds: 1, FLOPs: 1e8},
		{Op: "attention_forward", Shape: "8", Calls: 1, Seconds: 1, FLOPs: 6e8},
		{Op: "attention_backward", Shape: "8", Calls: 1, Seconds: 1, FLOPs: 8e8},
	}
	w := warmth{}
	for name, warm := range map[string]time.Duration{"copied": 1, "computed": 920 * time.Microsecond, "both": 500 * time.Microsecond, "lost": 100 * time.Microsecond, "short": 2 * time.Microsecond, "matmul": time.Second} {
		w[[2]string{name, "8"}] = warm
	}
	w.fill(r.Ops, r.CopyBandwidth)
	var text bytes.Buffer
	r.printMarks(&command.Printer{W: &text})
	want := []string{
		"both 8: 50% of its bound, mark 90%: a call takes 1000 us, 500 us with its data in the caches, 500 us to copy its bytes: computing and copying overlap only in part",
		"lost 8: 10% of its bound, mark 90%: a call takes 1000 us, 100 us with its data in the caches, 100 us to copy its bytes: lines that are written are read first, memory is not read in order, or other programs ran",
		"short 8: 10% of its bound, mark 90%: a call takes 20 us, 2 us with its data in the caches, 1 us to copy its bytes: the call is so short that distributing it to the threads takes much of the time",
		"attention_forward 8: 60% of the instructions' peak, mark 70%: exponentials, masks and the full blocks on the diagonal do not count as operations",
	}
	if got := strings.TrimPrefix(text.String(), "\nBelow their marks:\n"); got != strings.Join(want, "\n")+"\n" {
		t.Errorf("printed:\n%s\nwant:\n%s", got, strings.Join(want, "\n"))
	}
	r.SeqLength, r.Ops = 512, r.Ops[7:]
	if lines := r.belowMarks(); len(lines) > 0 {
		t.Errorf("attention over 512 tokens has a mark: %q", lines)
	}
}
