package bench

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/megatron/spec"
	"monotron/tools/internal/command"
)

var little = effort{cube: 8, product: time.Microsecond, hold: time.Microsecond, copied: 4096, steps: time.Microsecond}

func small() options {
	m := spec.Model{NumLayers: 2, HiddenSize: 16, FFNHiddenSize: 64, NumAttentionHeads: 2, NumQueryGroups: 2, KVChannels: 8,
		VocabSize: 20, PaddedVocabSize: 32, MaxPositions: 8, Position: spec.PositionLearned, Normalization: spec.LayerNorm, NormEpsilon: 1e-5,
		Activation: spec.GeluTanh, LinearBias: true, QKVBias: true, Tied: true, WindowLeft: -1, InitStd: 0.02, EmbeddingInitStd: 0.02}
	return options{name: "small", model: m, batch: 3, seq: 8, precision: "f32"}
}

// Claim: the object has the promised keys, and its numbers fit together: tokens
// from the step's time, the fraction from tokens and peak, ops within the step.
func TestMeasure(t *testing.T) {
	for _, precision := range []string{"f32", "bf16", "fp16"} {
		o := small()
		o.precision, o.steps = precision, 2
		d := ref.Open()
		r, err := measure(t.Context(), d, o, little, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		var keys map[string]any
		if err := json.Unmarshal(text, &keys); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"tokens_per_second", "flops_per_token", "gemm_peak_flops", "gemm_burst_flops", "fraction_of_gemm_peak", "fraction_of_gemm_burst", "peak_memory_bytes"} {
			if x, ok := keys[key].(float64); !ok || !(x > 0) {
				t.Errorf("%s: %s is %v", precision, key, keys[key])
			}
		}
		near := func(what string, got, want float64) {
			if math.Abs(got-want) > 1e-9*math.Abs(want) {
				t.Errorf("%s: %s is %g, want %g", precision, what, got, want)
			}
		}
		near("tokens a second", r.TokensPerSecond, 24/r.StepSeconds)
		near("FLOPs a token", r.FLOPsPerToken, o.model.FLOPs(3, 8)/24)
		near("fraction", r.Fraction, r.TokensPerSecond*r.FLOPsPerToken/r.GEMMPeak)
		near("fraction of the best moment", r.OfBurst*r.GEMMBurst, r.Fraction*r.GEMMPeak)
		if r.GEMMPeak > r.GEMMBurst {
			t.Errorf("%s: %g over seconds, but %g in the best moment", precision, r.GEMMPeak, r.GEMMBurst)
		}
		share := 0.0
		for _, op := range r.Ops {
			share += op.Share
		}
		if r.Steps != 2 || share > 1 || share <= 0 || math.Abs(r.Loss-math.Log(20)) > 0.2 || r.ArenaPeak <= 0 {
			t.Errorf("%s: %d steps, ops take %.2f of them, loss %.3f, arena %d", precision, r.Steps, share, r.Loss, r.ArenaPeak)
		}
		if reserved := d.Arena.Usage().Reserved; reserved != 0 {
			t.Errorf("%s: %d bytes of the arena are still held", precision, reserved)
		}
	}
}

// Claim: what `bench step` does not measure is absent from its object, and is not reported as 0.
func TestStepReportsWhatItMeasures(t *testing.T) {
	o, r := small(), &result{Threads: 1}
	o.steps = 1
	if err := r.train(ref.Open(), o, 0); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), `"tokens_per_second"`) || strings.Contains(string(text), "gemm") || strings.Contains(string(text), "cores_shared") || strings.Contains(string(text), "copy") {
		t.Errorf("%s", text)
	}
}

// Claim: products in what ops saw add up to Megatron's formula: all of it but
// the attention's, which the formula counts causally, as attention's Work does.
func TestOpsDoTheFormulasWork(t *testing.T) {
	o := small()
	o.steps = 1
	r := &result{Threads: 1}
	d := ref.Open()
	defer d.Arena.Close()
	if err := r.train(d, o, 0); err != nil {
		t.Fatal(err)
	}
	matmul, attention := 0.0, 0.0
	for _, op := range r.Ops {
		work := op.FLOPs * op.Seconds
		switch {
		case op.Op == "matmul":
			matmul += work
		case strings.HasPrefix(op.Op, "attention"):
			attention += work
		}
	}
	const b, s, q, layers = 3, 8, 16, 2
	ofScores := float64(6 * b * s * s * q * layers)
	if want := o.model.FLOPs(b, s) - ofScores; math.Abs(matmul-want) > 1e-6*want {
		t.Errorf("matrix products did %g operations, the formula says %g", matmul, want)
	}
	// flash attention makes the scores again in backward: 7 products for 6
	if want := ofScores * 7 / 6; math.Abs(attention-want) > 1e-6*want {
		t.Errorf("attention did %g operations, want %g", attention, want)
	}
}

// Claim: the products of GPT-2 124M are those of its linears, each direction
// once, and the head in chunks of rows.
func TestProducts(t *testing.T) {
	m, err := spec.Preset("gpt2-124m")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, p := range products(&m, 4, 512, 2048, 1024) {
		if found[p.String()] {
			t.Errorf("%s twice", p)
		}
		found[p.String()] = true
	}
	for _, want := range []string{"2048x2048x2048 nn", "2048x2304x768 nt", "2048x768x2304 nn", "2304x768x2048 tn +=", "2048x3072x768 nt",
		"768x3072x2048 tn +=", "1024x50304x768 nt", "1024x768x50304 nn", "50304x768x1024 tn +="} {
		if !found[want] {
			t.Errorf("%s is missing among %v", want, found)
		}
	}
}

// Claim: the text names speed, peak and every op by its name once.
func TestPrint(t *testing.T) {
	o := small()
	o.steps = 1
	r, err := measure(t.Context(), ref.Open(), o, little, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, everyShape := range []bool{false, true} {
		var out bytes.Buffer
		p := &command.Printer{W: &out}
		r.print(p, everyShape)
		text := out.String()
		if p.Err != nil || !strings.Contains(text, "tokens/s") || !strings.Contains(text, "GEMM peak") || !strings.Contains(text, "between ops") {
			t.Errorf("%v\n%s", p.Err, text)
		}
		if n := strings.Count(text, "\nmatmul "); (n > 1) != everyShape {
			t.Errorf("every shape %v: %d lines of matmul", everyShape, n)
		}
	}
}

// Claim: the products timed for long are the first and the fastest in a burst,
// and stay the same ones once they were.
func TestFastest(t *testing.T) {
	speeds := []device.Speed{{Burst: 3}, {Burst: 9}, {Burst: 1}, {Burst: 7}, {Burst: 5}}
	if got := fastest(speeds); !slices.Equal(got, []int{0, 1, 3, 4}) {
		t.Errorf("fastest of %v: %v", speeds, got)
	}
	speeds[2].Burst = 20
	for _, i := range []int{0, 1, 3, 4} {
		speeds[i].Sustained = float64(i + 1)
	}
	if got := fastest(speeds); !slices.Equal(got, []int{0, 4, 3, 1}) {
		t.Errorf("fastest of %v: %v", speeds, got)
	}
	if got := fastest(speeds[:1]); !slices.Equal(got, []int{0}) {
		t.Errorf("of one: %v", got)
	}
}

// Claim: the median of an even number is the mean of the middle two.
func TestMedian(t *testing.T) {
	total := func(s oneStep) time.Duration { return s.total }
	if got := medianOf([]oneStep{{total: 9 * time.Second}, {total: time.Second}, {total: 2 * time.Second}}, total); got != 2 {
		t.Errorf("median of 9, 1, 2 is %g", got)
	}
	if got := medianOf([]oneStep{{total: 4 * time.Second}, {total: time.Second}}, total); got != 2.5 {
		t.Errorf("median of 4, 1 is %g", got)
	}
}

// Claim: each wrong flag is one usage error that names it.
func TestFlagErrors(t *testing.T) {
	open := func(string) (*device.Device, error) { return ref.Open(), nil }
	for _, c := range []struct{ line, say string }{
		{"--model gpt9", "gpt9"},
		{"--micro-batch-size 0", "--micro-batch-size must be from 1 to 1048576, not 0"},
		{"--seq-length 0", "--seq-length must be from 1 to 2147483647, not 0"},
		{"--seq-length 2000", "exceeds the 1024 positions of gpt2-124m"},
		{"--steps -1", "--steps must be from 0 to 1000000, not -1"},
		{"--dropout 1", "--dropout must be below 1, not 1"},
		{"--bf16 --fp16", "--fp32, --bf16 and --fp16 cannot be combined; give one"},
		{"oops", "bench oops is unknown; choose from ops, peak,"},
		{"ops start", "bench accepts one argument"},
		{"experts --model gpt2-124m", "has no experts; use a model with experts, such as moe-237m"},
		{"contexts --only nope", "no name of an exchange contains this text; choose from cp2 p2p,"},
		{"contexts --seq-length 1020", "--seq-length 1020 is not a multiple of 8"},
		{"--stps 3", "--steps"},
	} {
		var out bytes.Buffer
		app := &cli.App{Commands: []*cli.Command{Command(open)}, Writer: &out, ErrWriter: &out, ExitErrHandler: func(*cli.Context, error) {}}
		err := app.Run(append([]string{"monotron", "bench"}, strings.Fields(c.line)...))
		if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s: %v; want a usage error with %q", c.line, err, c.say)
		}
	}
}
