package telemetry

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Lines prints what a rank has to say on standard output: the last rank, which knows the
// loss, Megatron's lines and what is printed with them, others their memory alone.
type Lines struct {
	Print      func(text string) error
	Rank       int
	Last       bool
	Throughput bool // --log-throughput
	Extras     bool // --log-extras

	window window
}

// Take prints the block of an evaluation, or a log line where one is due.
func (l *Lines) Take(s *Step) error {
	for _, text := range l.texts(s) {
		if err := l.Print(text); err != nil {
			return err
		}
	}
	return nil
}

// Close does nothing: standard output stays open.
func (l *Lines) Close() error { return nil }

// texts are what is printed of a step, in order.
func (l *Lines) texts(s *Step) (texts []string) {
	say := func(wanted bool, text func() string) {
		if wanted {
			texts = append(texts, text())
		}
	}
	if s.Split != "" {
		say(l.Last, func() string { return validation(s) })
		return texts
	}
	l.window.add(s)
	if s.Line == nil {
		return nil
	}
	means := l.window.take()
	say(l.Last, func() string { return l.line(s, means) })
	say(l.Last && l.Extras, func() string { return extras(s) })
	say(l.Last && s.Line.Usage != nil, func() string { return s.Line.Usage.table() })
	say(s.Line.MemoryLine, func() string { return s.Memory.line(l.Rank, s.Iteration) })
	say(l.Last && s.Line.Timers.timed(), func() string { return s.Line.Timers.text(s.Line.Iterations) })
	say(l.Last && s.Line.Stages != "", func() string { return s.Line.Stages })
	return texts
}

// line is Megatron's log line, without a newline. Source of names, order and digits:
// training_log in megatron/training/training.py.
func (l *Lines) line(s *Step, m means) string {
	var b strings.Builder
	fmt.Fprintf(&b, " [%s] iteration %8d/%8d | consumed samples: %12d |",
		s.Time.Format("2006-01-02 15:04:05.000000"), s.Iteration, s.TrainIters, s.ConsumedSamples)
	if s.SkippedSamples > 0 {
		fmt.Fprintf(&b, " skipped samples: %12d |", s.SkippedSamples)
	}
	fmt.Fprintf(&b, " elapsed time per iteration (ms): %s |", fixed(m.elapsed.Seconds()*1000, 1))
	if l.Throughput {
		fmt.Fprintf(&b, " throughput per GPU (TFLOP/s/GPU): %s |", fixed(s.FLOPs/m.elapsed.Seconds()/1e12, 1))
	}
	fmt.Fprintf(&b, " learning rate: %s | global batch size: %5d |", exponent(s.NextLearningRate), s.GlobalBatchSize)
	first := min(1, len(m.losses)) // those of experts are before multi-token prediction's
	for _, loss := range slices.Concat(s.shown(m.losses[:first]), s.MoE, s.shown(m.losses[first:])) {
		fmt.Fprintf(&b, " %s: %s |", loss.Name, exponent(loss.Value))
	}
	b.WriteString(preferences(s))
	fmt.Fprintf(&b, " loss scale: %s |", fixed(s.NextLossScale, 1))
	optional := func(name string, x *float64, text func(float64) string) {
		if x != nil {
			fmt.Fprintf(&b, " %s: %s |", name, text(*x))
		}
	}
	three := func(x float64) string { return fixed(x, 3) }
	optional("grad norm", s.GradNorm, three)
	optional("num zeros", s.NumZeros, shortest)
	optional("params norm", s.ParamsNorm, three)
	fmt.Fprintf(&b, " number of skipped iterations: %3d | number of nan iterations: %3d |", m.skipped, m.nan)
	return b.String()
}

// shown are the losses that are neither negative nor NaN; one by rewards may be negative.
func (s *Step) shown(losses []Value) []Value {
	return slices.DeleteFunc(slices.Clone(losses), func(loss Value) bool { return !(loss.Value >= 0 || s.rewarded() && loss.Value < 0) })
}

// validation is the block of three lines after an evaluation, without a last
// newline. Where is "iteration 5", at the end of a run "iteration 10 on
// validation set" or "iteration 10 on test set".
func validation(s *Step) string {
	what := Validation // of the test set too, as Megatron says it
	if s.Split == Train {
		what = Train
	}
	line := " " + what + " loss at " + s.Where + " | "
	for _, loss := range s.Losses {
		line += fmt.Sprintf("%s value: %s | ", loss.Name, exponent(loss.Value))
		if len(s.Preference) == 0 {
			line += fmt.Sprintf("%s PPL: %s | ", loss.Name, exponent(Perplexity(loss.Value)))
		}
	}
	if text := preferences(s); text != "" {
		line += text[1:] + " "
	}
	if s.Accuracy != nil {
		line += fmt.Sprintf("token accuracy: %.4f | ", *s.Accuracy)
	}
	dashes := strings.Repeat("-", len(line)+1)
	return dashes + "\n" + line + "\n" + dashes
}

// preferences are the parts of a line that show how well the better answers are distinguished from the worse
// ones, of this step alone; each begins with a space.
func preferences(s *Step) (text string) {
	for _, v := range s.Preference {
		switch v.Name {
		case "rewards_margins", "rewards_accuracies", "reward", "sampling/sampling_logp_difference/max":
			text += fmt.Sprintf(" %s: %s |", shownName.Replace(v.Name), fixed(v.Value, 4))
		}
	}
	return text
}

// shownName turns a number's name into words of a line.
var shownName = strings.NewReplacer("sampling/", "", "/", " ", "_", " ")

// Perplexity of a loss in nats, at most e^20 as Megatron prints it.
func Perplexity(loss float64) float64 { return math.Exp(math.Min(20, loss)) }

// ParameterCount is the line each model-parallel rank prints at the start.
func ParameterCount(tp, pp int, parameters int64) string {
	return fmt.Sprintf(" > number of parameters on (tensor, gtp_remat, pipeline) model parallel rank (%d, 0, %d): %d", tp, pp, parameters)
}

// extras is a line in the manner of nanoGPT (--log-extras), of one step alone.
func extras(s *Step) string {
	ms := func(d time.Duration) string { return fixed(d.Seconds()*1000, 2) + "ms" }
	loss := math.NaN()
	if len(s.Losses) > 0 {
		loss = s.Losses[0].Value
	}
	line := fmt.Sprintf("iter %d: loss %s, dt %s, dtf %s, dtb %s, tok/s %s, samples/s %s, %s", s.Iteration, fixed(loss, 4), ms(s.Elapsed), ms(s.Forward), ms(s.Backward),
		fixed(s.perSecond(s.Tokens), 0), fixed(s.perSecond(s.GlobalBatchSize), 2), rate(s.TFLOPs()))
	if mfu := s.MFU(); mfu > 0 {
		line += ", mfu " + fixed(100*mfu, 2) + "%"
	}
	return line
}

// rate says TFLOP/s in the unit that shows digits.
func rate(tflops float64) string {
	if tflops < 0.1 {
		return fixed(1000*tflops, 2) + " GFLOP/s"
	}
	return fixed(tflops, 2) + " TFLOP/s"
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
