package arguments

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/golden"
	"monotron/megatron/config"
	"monotron/megatron/optimizer"
)

// shellWords cuts a line as a shell would: spaces, double quotes.
func shellWords(line string) []string {
	var words []string
	quoted, open, word := false, false, ""
	for _, r := range line {
		switch {
		case r == '"':
			quoted, open = !quoted, true
		case (r == ' ' || r == '\n' || r == '\t') && !quoted:
			if open {
				words = append(words, word)
			}
			word, open = "", false
		default:
			word, open = word+string(r), true
		}
	}
	if open {
		words = append(words, word)
	}
	return words
}

var partly = Options{Partial: true, Layouts: true, Experts: true}

// Claim: learning rate and weight decay are Megatron's (golden case schedules),
// from the flags on.
func TestGoldenSchedules(t *testing.T) {
	var want struct {
		Rows []struct {
			Flags       string
			InSamples   map[string]*float64 `json:"in_samples"`
			LR          []float64
			WeightDecay []float64 `json:"weight_decay"`
			Skipped     []int     `json:"skipped_iterations"`
		}
	}
	golden.ReadJSON(t, "testdata/schedules.json", &want)
	for _, row := range want.Rows {
		c, _, err := ParseWith(partly, shellWords(row.Flags))
		if err != nil {
			t.Fatal(row.Flags, err)
		}
		s, err := c.Optimizer.Schedule(c.TrainIters, c.TrainSamples, c.GlobalBatchSize)
		if err != nil {
			t.Fatal(row.Flags, err)
		}
		for name, got := range map[string]float64{"warmup": s.WarmupSamples, "decay": float64(s.DecaySamples), "wd_increase": float64(s.WDSamples)} {
			if want := row.InSamples[name]; got != *want {
				t.Errorf("%s: %s %g samples, want %g", row.Flags, name, got, *want)
			}
		}
		p := optimizer.NewParamScheduler(s)
		for i := range row.LR {
			near(t, fmt.Sprint(row.Flags, ": lr of iteration ", i+1), p.LR(), row.LR[i])
			near(t, fmt.Sprint(row.Flags, ": weight decay of iteration ", i+1), p.WeightDecay(), row.WeightDecay[i])
			if !slices.Contains(row.Skipped, i+1) {
				p.Step(c.GlobalBatchSize)
			}
		}
	}
}

// near is the golden case's tolerance, 1e-12 relative.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if math.Abs(got-want) > 1e-12*math.Abs(want) {
		t.Errorf("%s is %.17g, want %.17g", what, got, want)
	}
}

// Claim: the dynamic loss scale moves as Megatron's (golden case loss-scale).
func TestGoldenLossScale(t *testing.T) {
	var want struct {
		Rows []struct {
			Flags, Overflow string
			After           [][3]float64 `json:"scale_growth_hysteresis_after"`
		}
	}
	golden.ReadJSON(t, "testdata/loss-scale.json", &want)
	for _, row := range want.Rows {
		c, _, err := ParseWith(partly, shellWords(row.Flags))
		if err != nil {
			t.Fatal(row.Flags, err)
		}
		if c.CheckForNaN {
			t.Errorf("%s: the check for NaN is on, overflow would end the run", row.Flags)
		}
		s := optimizer.NewScaler(&c.Optimizer, c.Precision == config.FP16)
		for i, want := range row.After {
			s.Update(row.Overflow[i] == '1')
			st := s.State()
			if got := [3]float64{st.Value, float64(st.Growth), float64(st.Hysteresis)}; got != want {
				t.Fatalf("%s: after iteration %d %v, want %v", row.Flags, i+1, got, want)
			}
		}
	}
}

// Claim: batch sizes grow as Megatron's (golden case batch-size).
func TestGoldenBatchSize(t *testing.T) {
	var want struct {
		Rows []struct {
			Flags      string
			DP         int `json:"data_parallel_size"`
			Iterations [][]any
		}
	}
	golden.ReadJSON(t, "testdata/batch-size.json", &want)
	for _, row := range want.Rows {
		c, _, err := ParseWith(partly, shellWords(row.Flags))
		if err != nil {
			t.Fatal(row.Flags, err)
		}
		b, err := config.NewBatchSizes(&c, row.DP)
		if err != nil {
			t.Fatal(row.Flags, err)
		}
		consumed := 0
		for _, want := range row.Iterations {
			got, err := b.At(consumed)
			if text, isError := want[2].(string); isError {
				if err == nil {
					t.Errorf("%s: no error, want %s", row.Flags, text)
				}
				break
			}
			if err != nil {
				t.Fatal(row.Flags, err)
			}
			if now := []any{float64(consumed), float64(got.Global), float64(got.Running), float64(got.Micros)}; fmt.Sprint(now) != fmt.Sprint(want) {
				t.Fatalf("%s: %v, want %v", row.Flags, now, want)
			}
			consumed += got.Running
		}
	}
}

// Claim: every command line in the golden model cases parses, and what
// validate_args derived there is derived here.
func TestGoldenCommandLines(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(golden.Dir(t, "model"), "*", "case.json"))
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for _, file := range files {
		var c struct {
			Flags         string
			MegatronFlags string `json:"megatron_flags"`
			BaseFlags     string `json:"base_flags"`
			CPU           string `json:"flags_for_the_cpu_run_only"`
			World         int    `json:"world_size"`
			Variants      map[string]struct{ Flags string }
			Derived       map[string]any `json:"derived_by_validate_args"`
		}
		golden.ReadJSON(t, file, &c)
		name := filepath.Base(filepath.Dir(file))
		for variant, v := range c.Variants {
			lines++
			if _, _, err := ParseWith(partly, Override(shellWords(c.BaseFlags), shellWords(v.Flags))); err != nil {
				t.Errorf("%s, %s: %v", name, variant, err)
			}
		}
		line := c.Flags + c.MegatronFlags
		if line == "" || len(c.Variants) > 0 {
			continue
		}
		lines++
		options := partly
		options.Ranks = c.World
		config, _, err := ParseWith(options, shellWords(line+" "+c.CPU))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		compareDerived(t, name, &config, c.Derived)
	}
	t.Logf("%d command lines", lines)
}

func compareDerived(t *testing.T, name string, c *config.Run, want map[string]any) {
	t.Helper()
	virtual := any(nil)
	if c.Layout.VP > 1 {
		virtual = c.Layout.VP
	}
	channels := c.Model.KVChannels
	if c.Model.Latent != nil {
		channels = c.Model.HiddenSize / c.Model.NumAttentionHeads // which Megatron derives, and does not read
	}
	got := map[string]any{"ffn_hidden_size": c.Model.FFNHiddenSize, "kv_channels": channels,
		"data_parallel_size": c.Layout.DP, "sequence_parallel": c.Layout.SequenceParallel, "virtual_pipeline_model_parallel_size": virtual}
	for key, value := range want {
		if have, ok := got[key]; ok && fmt.Sprint(have) != fmt.Sprint(value) {
			t.Errorf("%s: %s is %v, Megatron has %v", name, key, have, value)
		}
	}
}

// Claim: the vocabulary, once known, is padded as Megatron pads it, and the
// parameters are as many as it prints (golden cases pretrain-*).
func TestGoldenParameterCounts(t *testing.T) {
	for name, want := range map[string]int64{"pretrain-gpt2": 30080, "pretrain-llama": 25248} {
		var c struct{ Flags string }
		file := filepath.Join(golden.Dir(t, "model"), name, "case.json")
		golden.ReadJSON(t, file, &c)
		config, _, err := Parse(shellWords(c.Flags))
		if err != nil {
			t.Fatal(name, err)
		}
		if err := config.SetVocab(config.Tokenizer.VocabSize); err != nil {
			t.Fatal(err)
		}
		if got := config.Model.Parameters(); got != want {
			t.Errorf("%s: %d parameters, want %d", name, got, want)
		}
		if strings.Contains(c.Flags, "--lr-decay-style") && config.Optimizer.DecayStyle == "" {
			t.Errorf("%s: no decay style", name)
		}
	}
}
