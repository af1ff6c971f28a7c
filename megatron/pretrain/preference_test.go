package pretrain

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"monotron/internal/drawn"
	"monotron/internal/golden"
	"monotron/internal/safetensors"
	"monotron/megatron/telemetry"
)

// preferred is the case of golden/dpo.
type preferred struct {
	dir     string
	Methods map[string]struct {
		Loss      string
		Beta      float64
		Smoothing float64 `json:"label_smoothing"`
		Gamma     float64
		SFT       float64 `json:"cpo_alpha"`
		Good      float64 `json:"desirable_weight"`
		Bad       float64 `json:"undesirable_weight"`
		Reference string
		LoRA      bool
	}
	Kinds map[string]struct {
		File   string
		Curves map[string]struct {
			Steps []preferredStep
		}
	}
	Tolerance map[string]any
}

// preferredStep is a step of a curve; nil: the reference does not log it.
type preferredStep struct {
	Loss       float64
	Norm       float64  `json:"grad_norm"`
	Chosen     *float64 `json:"rewards_chosen"`
	Rejected   *float64 `json:"rewards_rejected"`
	Margins    *float64 `json:"rewards_margins"`
	Accuracies *float64 `json:"rewards_accuracies"`
	LogPC      *float64 `json:"logps_chosen"`
	LogPR      *float64 `json:"logps_rejected"`
	KL         *float64
}

func openPreferred(t *testing.T) (c preferred) {
	t.Helper()
	c.dir = golden.Dir(t, "dpo")
	golden.ReadJSON(t, filepath.Join(c.dir, "case.json"), &c)
	return c
}

// folders makes DIR/base, DIR/reference and DIR/adapter of the case's files.
func (c *preferred) folders(t *testing.T, dir string) {
	t.Helper()
	baseFolder(t, dir, c.dir, filepath.Join(golden.Dir(t, "chat"), "tokenizer.json"))
	for _, path := range []string{"reference", "adapter"} {
		if err := os.MkdirAll(filepath.Join(dir, path), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for to, from := range map[string]string{"reference/config.json": "config.json", "reference/model.safetensors": "reference.safetensors",
		"adapter/adapter_config.json": "adapter/adapter_config.json", "adapter/adapter_model.safetensors": "adapter/adapter_model.safetensors"} {
		text, err := os.ReadFile(filepath.Join(c.dir, from))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// preferLine tunes DIR/base as golden/dpo does.
var preferLine = strings.Replace(tuneLine, "--tuning sft ", "", 1)

// line is the command line of a method on rows of a kind.
func (c *preferred) line(kind, method string) string {
	m := c.Methods[method]
	line := fmt.Sprintf("--finetune-data %s --beta %g %s", filepath.Join(c.dir, c.Kinds[kind].File), m.Beta, preferLine)
	switch m.Loss {
	case "orpo", "ipo":
		line += "--tuning " + m.Loss + " "
	case "simpo":
		line += fmt.Sprintf("--tuning simpo --simpo-gamma %g --sft-weight %g ", m.Gamma, m.SFT)
	case "kto":
		line += fmt.Sprintf("--tuning kto --kto-desirable-weight %g --kto-undesirable-weight %g ", m.Good, m.Bad)
	case "conservative":
		line += fmt.Sprintf("--tuning dpo --label-smoothing %g ", m.Smoothing)
	default:
		line += "--tuning dpo --preference-loss " + m.Loss + " "
		if m.Smoothing > 0 {
			line += fmt.Sprintf("--label-smoothing %g ", m.Smoothing)
		}
	}
	if m.Reference != "" {
		line += "--ref-load DIR/reference "
	}
	if m.LoRA {
		line += "--adapter DIR/adapter "
	}
	return line
}

// worst is how far off a run is, by what is measured, in units of the tolerance.
type worst map[string]float64

func (w worst) see(what string, off, tolerance float64) {
	if off /= tolerance; !(off <= w[what]) {
		w[what] = off
	}
}

// curve compares steps with those of the reference.
func (w worst) curve(t *testing.T, got []telemetry.Entry, want []preferredStep, tol map[string]any) {
	t.Helper()
	number := func(name string) float64 { return tol[name].(float64) }
	if len(got) != len(want) || len(got) == 0 {
		t.Fatalf("%d steps, want %d", len(got), len(want))
	}
	for i, s := range want {
		g := got[i]
		w.see("loss", math.Abs(float64(*g.LMLoss)-s.Loss), number("curve_loss_abs"))
		w.see("norm", math.Abs(float64(*g.GradNorm)/s.Norm-1), number("curve_grad_norm_rel"))
		for what, pair := range map[string]struct {
			got  *telemetry.Number
			want *float64
		}{"chosen": {g.RewardsChosen, s.Chosen}, "rejected": {g.RewardsRejected, s.Rejected}, "margins": {g.RewardsMargins, s.Margins}, "accuracies": {g.RewardsAccuracies, s.Accuracies},
			"logp chosen": {g.LogPsChosen, s.LogPC}, "logp rejected": {g.LogPsRejected, s.LogPR}, "kl": {g.KL, s.KL}} {
			switch {
			case (pair.got == nil) != (pair.want == nil):
				t.Errorf("step %d %s: %v, want %v", i+1, what, pair.got, pair.want)
			case pair.want != nil:
				w.see(what, math.Abs(float64(*pair.got)-*pair.want), number("rewards_and_logps_abs"))
			}
		}
	}
}

// Claim (golden/dpo: float64 torch, TRL 1.16): 8 steps of each method, of all weights and of an
// adapter, have the reference's losses, gradient norms, rewards, log-probabilities and weights, and
// the first step its gradients.
func TestPreferencesOfTRL(t *testing.T) {
	c := openPreferred(t)
	expected, err := safetensors.Open(filepath.Join(c.dir, "expected.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer expected.Close()
	dir, curves := t.TempDir(), 0
	c.folders(t, dir)
	for kind, k := range c.Kinds {
		for method, curve := range k.Curves {
			tol := c.Tolerance[kind].(map[string]any)[method].(map[string]any)
			line, name := c.line(kind, method)+"--micro-batch-size 4 ", kind+"-"+method
			must(t, dir, line+"--save DIR/save-"+name+" --log-jsonl DIR/log-"+name)
			w := worst{}
			w.curve(t, stepsOf(t, filepath.Join(dir, "log-"+name)), curve.Steps, tol)
			must(t, dir, line+"--save DIR/first-"+name+" --train-iters 1 --optimizer sgd --sgd-momentum 0 --lr 1024 --min-lr 1024")
			before, after, first := inHF(t, filepath.Join(dir, "base")), inHF(t, filepath.Join(dir, "save-"+name)), inHF(t, filepath.Join(dir, "first-"+name))
			if c.Methods[method].LoRA {
				of := func(folder string) func(string) []float32 {
					f := openAdapter(t, filepath.Join(dir, folder))
					return func(name string) []float32 {
						values, err := f.Float32(name)
						if err != nil {
							t.Fatal(err)
						}
						return values
					}
				}
				before, after, first = of("adapter"), of("save-"+name+"/adapter"), of("first-"+name+"/adapter")
			}
			seen := 0
			for _, tensor := range expected.Names() {
				want, err := expected.Float32(tensor)
				if err != nil {
					t.Fatal(err)
				}
				if short, is := strings.CutPrefix(tensor, kind+"."+method+".param_after_8."); is {
					w.see("weights", off(after(short), want), tol["param_rel_to_tensor_norm"].(float64))
					seen++
				} else if short, is := strings.CutPrefix(tensor, kind+"."+method+".grad."); is {
					grad, from := first(short), before(short)
					for i := range grad {
						grad[i] = (from[i] - grad[i]) / 1024
					}
					w.see("gradient", off(grad, want), tol["gradient_rel_to_tensor_norm"].(float64))
					seen++
				}
			}
			for what, off := range w {
				if !(off <= 1) {
					t.Errorf("%s: %s is off by %.3g times the tolerance", name, what, off)
				}
			}
			if seen < 8 {
				t.Errorf("%s: %d tensors compared", name, seen)
			}
			curves++
		}
	}
	if curves != 26 {
		t.Errorf("%d curves", curves)
	}
}

// Claim: the losses, the gradient norms and the rewards depend on the rows alone, not on how they
// are split into micro-batches or over data-parallel, tensor-parallel and pipeline ranks, nor on who
// holds the optimizer's state; and tensors take the memory that was planned.
func TestPreferencesInEveryLayout(t *testing.T) {
	c := openPreferred(t)
	dir := t.TempDir()
	c.folders(t, dir)
	for kind, methods := range map[string][]string{"messages": {"sigmoid-other-reference", "orpo", "simpo-nll", "lora-sigmoid"}, "unpaired": {"kto-weighted", "lora-kto"}} {
		for _, method := range methods {
			line := strings.ReplaceAll(c.line(kind, method), "--no-data-shuffle", "") + "--train-iters 5 "
			name := kind + "-" + method
			must(t, dir, line+"--micro-batch-size 4 --log-jsonl DIR/log-"+name)
			want := stepsOf(t, filepath.Join(dir, "log-"+name))
			for i, layout := range drawn.Part(t, []string{"--micro-batch-size 1", "--micro-batch-size 2", "--world-size 2 --micro-batch-size 2", "--world-size 4 --micro-batch-size 1 --use-distributed-optimizer",
				"--world-size 2 --tensor-model-parallel-size 2 --micro-batch-size 2", "--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel --micro-batch-size 1",
				"--world-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 1", "--world-size 4 --pipeline-model-parallel-size 2 --tensor-model-parallel-size 2 --micro-batch-size 2",
				"--world-size 4 --pipeline-model-parallel-size 2 --micro-batch-size 1", "--world-size 2 --zero-stage 3 --micro-batch-size 1",
				"--micro-batch-size 2 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"}, 3) {
				log := fmt.Sprintf("log-%s-%d", name, i)
				r := must(t, dir, line+layout+" --log-jsonl DIR/"+log)
				memory := regexp.MustCompile(`the peak memory of tensors is (.*) so far, and (.*) were planned`).FindAllStringSubmatch(r.notes, -1)
				if len(memory) == 0 {
					t.Errorf("%s %s: no note on memory", name, layout)
				}
				for _, m := range memory {
					if m[1] != m[2] {
						t.Errorf("%s %s: %s", name, layout, m[0])
					}
				}
				got := stepsOf(t, filepath.Join(dir, log))
				if len(got) != len(want) || len(want) != 5 {
					t.Fatalf("%d and %d steps", len(got), len(want))
				}
				for i := range got {
					for what, pair := range map[string][2]*telemetry.Number{"loss": {got[i].LMLoss, want[i].LMLoss}, "norm": {got[i].GradNorm, want[i].GradNorm}, "chosen": {got[i].RewardsChosen, want[i].RewardsChosen},
						"rejected": {got[i].RewardsRejected, want[i].RewardsRejected}, "accuracies": {got[i].RewardsAccuracies, want[i].RewardsAccuracies}, "kl": {got[i].KL, want[i].KL}, "nll": {got[i].NLLLoss, want[i].NLLLoss}} {
						if (pair[0] == nil) != (pair[1] == nil) {
							t.Errorf("%s %s: step %d: %s is logged in one layout alone", name, layout, i+1, what)
						} else if pair[0] != nil && !(math.Abs(float64(*pair[0]-*pair[1])) <= 2e-5*(1+math.Abs(float64(*pair[1])))) {
							t.Errorf("%s %s: step %d: %s %.8g, want %.8g", name, layout, i+1, what, *pair[0], *pair[1])
						}
					}
				}
			}
		}
	}
}

// Claim: a fresh run's first step has the loss log 2 and no rewards, bit for bit, of rows in any
// order, also with a new adapter.
func TestPreferencesBeginAtTheReference(t *testing.T) {
	c := openPreferred(t)
	dir := t.TempDir()
	c.folders(t, dir)
	for i, flags := range []string{"--micro-batch-size 2", "--micro-batch-size 1 --world-size 2", "--micro-batch-size 2 --lora-rank 2", "--micro-batch-size 4 --bf16", "--micro-batch-size 2 --lora-rank 2 --use-dora"} {
		log := fmt.Sprint("log", i)
		must(t, dir, strings.ReplaceAll(c.line("text", "sigmoid"), "--no-data-shuffle", "")+"--train-iters 4 --lr 1e-30 --min-lr 0 "+flags+" --log-jsonl DIR/"+log)
		for _, s := range stepsOf(t, filepath.Join(dir, log)) {
			most := 0.0
			if strings.Contains(flags, "dora") { // its norms round
				most = 1e-5
			}
			for _, reward := range []*telemetry.Number{s.RewardsChosen, s.RewardsRejected, s.RewardsMargins} {
				if math.Abs(float64(*reward)) > most || math.Abs(float64(*s.LMLoss)-math.Ln2) > 1e-15+most {
					t.Errorf("%s: iteration %d: loss %v, reward %v", flags, s.Iteration, *s.LMLoss, *reward)
				}
			}
		}
	}
}

// Claim: a preference tuning that is stopped resumes bit for bit: it keeps the reference it
// started with, in another layout too.
func TestPreferencesResume(t *testing.T) {
	c := openPreferred(t)
	for kind, methods := range map[string][]string{"messages": {"sigmoid", "sigmoid-other-reference", "lora-sigmoid", "orpo"}, "unpaired": {"kto-weighted"}} {
		for _, method := range methods {
			dir := t.TempDir()
			c.folders(t, dir)
			line := strings.ReplaceAll(c.line(kind, method), "--no-data-shuffle", "") + "--micro-batch-size 1 --world-size 2 --use-distributed-optimizer --save-interval 4 "
			full := must(t, dir, line+"--save DIR/whole")
			got := inTwoParts(t, dir, line)
			if a, b := strings.Join(got, "\n"), strings.Join(numbers(full.out), "\n"); a != b {
				t.Errorf("%s: in parts\n%s\nat once\n%s", method, a, b)
			}
			if a, b := weights(t, filepath.Join(dir, "part")), weights(t, filepath.Join(dir, "whole")); a != b {
				t.Errorf("%s: weights %s in parts, %s at once", method, a, b)
			}
			_, there := os.Stat(filepath.Join(dir, "part", "reference_logps.json"))
			if (there == nil) != (method != "orpo") {
				t.Errorf("%s: the kept reference: %v", method, there)
			}
			if method != "sigmoid" {
				continue
			}
			if err := os.Remove(filepath.Join(dir, "part", "reference_logps.json")); err != nil {
				t.Fatal(err)
			}
			next := line + "--train-iters 9 --save DIR/part --load DIR/part "
			r := call(t, dir, next)
			if r.err == nil || !strings.Contains(r.err.Error(), "give --ref-load, the model from which the tuning started") {
				t.Errorf("without the kept reference: %v", r.err)
			}
			again, want := lossesOf(t, must(t, dir, next+"--ref-load DIR/base").out), lossesOf(t, must(t, dir, line+"--train-iters 9 --save DIR/whole --load DIR/whole").out)
			if len(again) != 1 || !slices.Equal(again, want) {
				t.Errorf("losses %v with --ref-load, %v with the kept reference", again, want)
			}
			if other := lossesOf(t, must(t, dir, line+"--train-iters 10 --load DIR/whole --save DIR/other --world-size 1 --micro-batch-size 4").out); len(other) != 1 {
				t.Errorf("losses %v in another layout", other)
			} else if want := lossesOf(t, must(t, dir, line+"--train-iters 10 --load DIR/whole --save DIR/whole").out); math.Abs(other[0]-want[0]) > 1e-6 {
				t.Errorf("loss %v in another layout and folder, want %v", other[0], want[0])
			}
		}
	}
}

// evaluations are those of a log.
func evaluations(t *testing.T, path string) []telemetry.Entry {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, err := telemetry.ReadJSONL(strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(e telemetry.Entry) bool { return e.Validation == "" })
}

// Claim: evaluations have the loss and the rewards of the validation rows, of DPO under the
// reference the tuning began with: the same in every layout, and at the start log 2 and 0.
func TestPreferencesEvaluate(t *testing.T) {
	c := openPreferred(t)
	dir := t.TempDir()
	c.folders(t, dir)
	for _, method := range drawn.Part(t, []string{"sigmoid", "orpo", "kto"}, 1) {
		line := c.line("text", method) + "--finetune-eval-data " + filepath.Join(c.dir, map[bool]string{true: "unpaired.jsonl", false: "messages.jsonl"}[method == "kto"]) + " --eval-at-start --eval-interval 2 --train-iters 4 "
		var want []telemetry.Entry
		for i, layout := range []string{"--micro-batch-size 2", "--micro-batch-size 1 --world-size 2", "--micro-batch-size 2 --world-size 2 --tensor-model-parallel-size 2",
			"--micro-batch-size 1 --world-size 2 --pipeline-model-parallel-size 2", "--micro-batch-size 1 --world-size 4"} {
			log := fmt.Sprint("log", method, i)
			must(t, dir, line+layout+" --log-jsonl DIR/"+log)
			found := evaluations(t, filepath.Join(dir, log))
			if len(found) != 3 || found[0].Accuracy != nil || method == "sigmoid" && math.Abs(float64(found[0].Loss["lm loss"])-math.Ln2) > 1e-6 {
				t.Fatalf("%s: %+v", layout, found)
			}
			if want == nil {
				want = found
			}
			for i := range found {
				if a, b := found[i], want[i]; math.Abs(float64(a.Loss["lm loss"]-b.Loss["lm loss"])) > 2e-5 || math.Abs(float64(*a.RewardsMargins-*b.RewardsMargins)) > 1e-4 ||
					method == "kto" && math.Abs(float64(*a.KL-*b.KL)) > 1e-4 || method != "kto" && i > 0 && *a.RewardsAccuracies != *b.RewardsAccuracies {
					t.Errorf("%s %s: evaluation %d: %+v, one rank has %+v", method, layout, i, *a.Preferred, *b.Preferred)
				}
			}
			if *found[2].RewardsMargins == *found[0].RewardsMargins || method == "kto" && *found[2].KL == 0 {
				t.Errorf("%s: nothing was learned: %+v", method, *found[2].Preferred)
			}
		}
	}
}

// Claim: what preference tuning does not have is refused by name, before anything is trained.
func TestPreferencesRefuse(t *testing.T) {
	c := openPreferred(t)
	dir := t.TempDir()
	c.folders(t, dir)
	text, kto := "--finetune-data "+filepath.Join(c.dir, "text.jsonl")+" ", "--finetune-data "+filepath.Join(c.dir, "unpaired.jsonl")+" "
	for _, w := range []struct{ flags, says string }{
		{text + "--tuning dpo --finetune-packing bfd", "--finetune-packing bfd cannot be combined with --tuning dpo"},
		{text + "--tuning dpo --world-size 2 --context-parallel-size 2", "--context-parallel-size 2 cannot be combined with --tuning dpo"},
		{text + "--tuning dpo --train-on-prompts", "--train-on-prompts needs --tuning sft"},
		{text + "--tuning dpo --lora-rank 2 --lora-dropout 0.1", "--lora-dropout 0.1 cannot be combined with --tuning dpo"},
		{text + "--tuning dpo --hidden-dropout 0.1", "--hidden-dropout 0.1 cannot be combined with --tuning dpo"},
		{text + "--tuning dpo --kto-desirable-weight 2", "--kto-desirable-weight needs --tuning kto"},
		{text + "--tuning orpo --ref-load DIR/base", "--ref-load needs --tuning dpo, ipo or kto"},
		{text + "--tuning sft --beta 0.1", "--beta needs --tuning dpo"},
		{text + "--tuning kto --preference-loss hinge", "--preference-loss hinge is not a loss of --tuning kto; choose kto, apo_zero_unpaired"},
		{text + "--tuning dpo --preference-loss hinge --label-smoothing 0.1", "--label-smoothing cannot be combined with --preference-loss hinge"},
		{text + "--tuning dpo --preference-loss robust --label-smoothing 0.5", "needs --label-smoothing below 0.5"},
		{text + "--tuning dpo --beta 0", "--beta must be above 0"},
		{text + "--tuning dpo --ref-load DIR/none", "--ref-load: "},
		{kto + "--tuning kto --global-batch-size 1", "--tuning kto needs --global-batch-size 2 or more"},
		{kto + "--tuning dpo", "unpaired.jsonl:1: the row is one answer with a label, which only --tuning kto can use"},
	} {
		r := call(t, dir, strings.Replace(preferLine, "--global-batch-size 4", "", 1)+"--micro-batch-size 1 "+w.flags)
		if r.err == nil || !strings.Contains(r.err.Error(), w.says) || strings.Contains(r.out, "iteration") {
			t.Errorf("%s: %v, want %s", w.flags, r.err, w.says)
		}
	}
}

// Claim: of a list of losses the first step has the weighted sum of the losses that golden/dpo has for each;
// with sft it is the run of --sft-weight, bit for bit.
func TestPreferencesOfSeveralLosses(t *testing.T) {
	c := openPreferred(t)
	dir := t.TempDir()
	c.folders(t, dir)
	line := "--finetune-data " + filepath.Join(c.dir, c.Kinds["text"].File) + fmt.Sprintf(" --beta %g ", c.Methods["sigmoid-other-reference"].Beta) + preferLine + "--tuning dpo --ref-load DIR/reference --micro-batch-size 2 --train-iters 3 "
	first := func(name, flags string) telemetry.Entry {
		must(t, dir, line+flags+" --log-jsonl DIR/"+name)
		return stepsOf(t, filepath.Join(dir, name))[0]
	}
	a, b := first("a", "--preference-loss sigmoid"), first("b", "--preference-loss hinge")
	both := first("both", "--preference-loss sigmoid hinge --preference-loss-weights 0.75 0.5")
	if want := 0.75*float64(*a.LMLoss) + 0.5*float64(*b.LMLoss); math.Abs(float64(*both.LMLoss)-want) > 1e-12 || *both.RewardsMargins != *a.RewardsMargins {
		t.Errorf("loss %.15g, want %.15g", *both.LMLoss, want)
	}
	x, y := must(t, dir, line+"--preference-loss sigmoid sft --preference-loss-weights 1 0.5"), must(t, dir, line+"--sft-weight 0.5")
	if got, want := numbers(x.out), numbers(y.out); len(got) != 3 || !slices.Equal(got, want) {
		t.Errorf("with sft\n%s\nwith --sft-weight\n%s", got, want)
	}
	for flags, says := range map[string]string{"--preference-loss sft": "sft only together with another loss", "--preference-loss sigmoid hinge --preference-loss-weights 1": "1 numbers for 2 losses", "--preference-loss sigmoid sft --sft-weight 1": "cannot be combined with --sft-weight, which has the same effect", "--preference-loss sigmoid kto": "is not a loss of --tuning dpo"} {
		if r := call(t, dir, line+flags); r.err == nil || !strings.Contains(r.err.Error(), says) {
			t.Errorf("%s: %v", flags, r.err)
		}
	}
}
