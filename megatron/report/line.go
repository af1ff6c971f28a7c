// Package report tells what a run does: Megatron's log lines letter for letter,
// timers, JSON lines, TensorBoard event files, a Chrome trace, progress and plots.
//
// Reading order: line.go (the log line), window.go (what it averages), timers.go,
// jsonl.go, events.go with proto.go (TensorBoard), trace.go, progress.go, plot.go.
package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Value is a number with a name, as in "lm loss".
type Value struct {
	Name  string
	Value float64
}

// Iteration is what one log line says. Nil pointers and empty lists are left out.
// Source of names, order and digits: training_log in megatron/training/training.py.
type Iteration struct {
	Iteration, TrainIters int
	ConsumedSamples       int64
	SkippedSamples        int64         // by --decrease-batch-size-if-needed; 0: left out
	Elapsed               time.Duration // per iteration
	Throughput            *float64      // TFLOP/s per device, with --log-throughput
	LearningRate          float64       // of the next iteration
	GlobalBatchSize       int
	Losses                []Value // means over the iterations of the line
	MoE                   []Value // load_balancing_loss, z_loss, ..
	LossScale             float64
	GradNorm              *float64
	NumZeros              *float64
	ParamsNorm            *float64
	SkippedIterations     int
	NaNIterations         int
}

// Line is Megatron's log line for it, without a newline.
func (it *Iteration) Line(at time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, " [%s] iteration %8d/%8d | consumed samples: %12d |",
		at.Format("2006-01-02 15:04:05.000000"), it.Iteration, it.TrainIters, it.ConsumedSamples)
	if it.SkippedSamples > 0 {
		fmt.Fprintf(&b, " skipped samples: %12d |", it.SkippedSamples)
	}
	fmt.Fprintf(&b, " elapsed time per iteration (ms): %s |", fixed(it.Elapsed.Seconds()*1000, 1))
	if it.Throughput != nil {
		fmt.Fprintf(&b, " throughput per GPU (TFLOP/s/GPU): %s |", fixed(*it.Throughput, 1))
	}
	fmt.Fprintf(&b, " learning rate: %s | global batch size: %5d |", exponent(it.LearningRate), it.GlobalBatchSize)
	for _, loss := range it.Losses {
		if loss.Value >= 0 { // neither negative nor NaN
			fmt.Fprintf(&b, " %s: %s |", loss.Name, exponent(loss.Value))
		}
	}
	for _, loss := range it.MoE {
		fmt.Fprintf(&b, " %s: %s |", loss.Name, exponent(loss.Value))
	}
	fmt.Fprintf(&b, " loss scale: %s |", fixed(it.LossScale, 1))
	if it.GradNorm != nil {
		fmt.Fprintf(&b, " grad norm: %s |", fixed(*it.GradNorm, 3))
	}
	if it.NumZeros != nil {
		fmt.Fprintf(&b, " num zeros: %s |", shortest(*it.NumZeros))
	}
	if it.ParamsNorm != nil {
		fmt.Fprintf(&b, " params norm: %s |", fixed(*it.ParamsNorm, 3))
	}
	fmt.Fprintf(&b, " number of skipped iterations: %3d | number of nan iterations: %3d |", it.SkippedIterations, it.NaNIterations)
	return b.String()
}

// Validation is the block of three lines after an evaluation, without a last
// newline. where is "iteration 5", at the end of a run "iteration 10 on
// validation set" or "iteration 10 on test set".
func Validation(where string, losses []Value) string {
	line := " validation loss at " + where + " | "
	for _, loss := range losses {
		line += fmt.Sprintf("%s value: %s | %s PPL: %s | ", loss.Name, exponent(loss.Value), loss.Name, exponent(Perplexity(loss.Value)))
	}
	dashes := strings.Repeat("-", len(line)+1)
	return dashes + "\n" + line + "\n" + dashes
}

// Perplexity of a loss in nats, at most e^20 as Megatron prints it.
func Perplexity(loss float64) float64 { return math.Exp(math.Min(20, loss)) }

// ParameterCount is the line each model-parallel rank prints at the start.
func ParameterCount(tp, pp int, parameters int64) string {
	return fmt.Sprintf(" > number of parameters on (tensor, gtp_remat, pipeline) model parallel rank (%d, 0, %d): %d", tp, pp, parameters)
}

// Extras are numbers of one iteration beyond Megatron's line (--log-extras).
type Extras struct {
	Iteration       int
	Loss            float64
	Total           time.Duration
	Forward         time.Duration
	Backward        time.Duration
	TokensPerSecond float64
	MFU             float64 // fraction of the device's measured peak; 0: not known
}

// Line says them in the manner of nanoGPT.
func (e *Extras) Line() string {
	ms := func(d time.Duration) string { return fixed(d.Seconds()*1000, 2) + "ms" }
	line := fmt.Sprintf("iter %d: loss %s, dt %s, dtf %s, dtb %s, tok/s %s", e.Iteration, fixed(e.Loss, 4), ms(e.Total), ms(e.Forward), ms(e.Backward), fixed(e.TokensPerSecond, 0))
	if e.MFU > 0 {
		line += ", mfu " + fixed(100*e.MFU, 2) + "%"
	}
	return line
}

// exponent is Python's {:.6E}.
func exponent(x float64) string {
	if name, ok := notFinite(x); ok {
		return strings.ToUpper(name)
	}
	return fmt.Sprintf("%.6E", x)
}

// fixed is Python's {:.Nf}.
func fixed(x float64, digits int) string {
	if name, ok := notFinite(x); ok {
		return name
	}
	return strconv.FormatFloat(x, 'f', digits, 64)
}

// shortest is Python's repr of a float.
func shortest(x float64) string {
	if name, ok := notFinite(x); ok {
		return name
	}
	if a := math.Abs(x); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(x, 'e', -1, 64)
	}
	text := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// notFinite names inf and nan as Python does.
func notFinite(x float64) (string, bool) {
	switch {
	case math.IsNaN(x):
		return "nan", true
	case math.IsInf(x, 1):
		return "inf", true
	case math.IsInf(x, -1):
		return "-inf", true
	}
	return "", false
}
