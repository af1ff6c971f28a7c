package modelcase

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/csrc/cpu"
	"monotron/csrc/device"
	"monotron/internal/golden"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/checkpoint/peft"
	"monotron/megatron/config"
	"monotron/megatron/optimizer"
	"monotron/mpu"
)

// adapterCase is a case of golden/lora.
type adapterCase struct {
	dir, base     string
	adapter       string // PEFT's folder
	without, with string // names of logits in expected.safetensors
	family        string
	folders       bool // gradients and the adapter after training lie in PEFT's folders, grad and after
	Base          string
	Expected      struct {
		Curve []struct {
			Loss float64
			Norm float64 `json:"grad_norm"`
		}
	}
	Tolerance map[string]float64
}

// Claim (golden/lora, PEFT 0.21 in float64): with an adapter of LoRA, rsLoRA or DoRA the logits,
// the gradients of A, B and the magnitudes, eight steps of AdamW and the adapter after them are
// PEFT's, on every device.
func TestAdaptersOfPEFT(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(golden.Dir(t, "lora"), "*", "case.json"))
	if len(files) < 9 {
		t.Fatalf("only %d cases", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			text, err := os.ReadFile(file)
			c := adapterCase{dir: filepath.Dir(file)}
			if err == nil {
				err = json.Unmarshal(text, &c)
			}
			if err != nil {
				t.Fatal(err)
			}
			c.base, c.adapter = golden.Dir(t, "model", filepath.Base(c.Base)), c.dir
			c.without, c.with = "logits_without_adapter", "logits"
			c.check(t, openRef)
			if d, err := cpu.Open(); err == nil { // not without cgo
				d.Close()
				c.check(t, cpu.Open)
			}
		})
	}
}

// Claim (testdata/adapters, PEFT 0.21 in float64, made by tests/proofs/tuning/parts.py): the same of adapters on embeddings,
// output layers, experts and state-space scans, of modules that are trained in full with an adapter, and of biases.
func TestAdaptersOnOtherPartsOfPEFT(t *testing.T) {
	files, _ := filepath.Glob("testdata/adapters/*/case.json")
	if len(files) != 9 {
		t.Fatalf("%d cases", len(files))
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			text, err := os.ReadFile(file)
			c := adapterCase{dir: filepath.Dir(file), folders: true, without: "logits_without_adapter", with: "logits"}
			if err == nil {
				err = json.Unmarshal(text, &c)
			}
			if err != nil {
				t.Fatal(err)
			}
			c.base, c.adapter = c.Base, c.dir
			if !strings.HasPrefix(c.Base, "testdata/") {
				c.base = golden.Dir(t, "model", c.Base)
			}
			c.check(t, openRef)
			if d, err := cpu.Open(); err == nil { // not without cgo
				d.Close()
				c.check(t, cpu.Open)
			}
		})
	}
}

// adapted is the base with the adapter on it.
func (c *adapterCase) adapted(t *testing.T, open func() (*device.Device, error), adapters bool) *trial {
	t.Helper()
	base, err := readCase(c.base)
	if err != nil {
		t.Fatal(err)
	}
	c.family = base.Architecture
	d, err := open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	r := &run{caseFile: base, device: d, open: open, report: &Report{}}
	line, err := base.commandLine(positionsOf(base))
	if err != nil {
		t.Fatal(err)
	}
	line = append(line, strings.Fields("--lr 5e-3 --min-lr 5e-3 --lr-decay-style constant --lr-warmup-iters 0 --lr-warmup-init 0 --adam-beta1 0.9 --adam-beta2 0.999 --adam-eps 1e-8 --weight-decay 0.01 --clip-grad 0 --train-iters 8 --lr-decay-iters 8")...)
	settings, err := r.parse(line)
	if err != nil {
		t.Fatal(err)
	}
	settings.Model.PaddedVocabCounts = true
	made := &trial{}
	if made.weights, _, err = r.openWeights(base); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.weights.file.Close() })
	if made.batches, err = r.readBatches(&settings); err != nil {
		t.Fatal(err)
	}
	c.build(t, made, d, settings, base.Architecture, adapters)
	return made
}

func (c *adapterCase) build(t *testing.T, made *trial, d *device.Device, settings config.Run, family string, adapters bool) {
	t.Helper()
	f, err := peft.Open(c.adapter, &settings.Model, family)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if adapters {
		settings.Model.Adapters, settings.Model.Retrained = f.Adapters, f.Retrained()
	}
	if made.subject, err = newSubject(d, settings, made.weights); err != nil || !adapters {
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	var wanted []mpu.Stored
	for _, s := range made.Weights() {
		if name := strings.TrimPrefix(s.Name, optimizer.StoredModel); strings.HasPrefix(name, mpu.AdapterPrefix) || f.Holds(name) {
			wanted = append(wanted, s)
		}
	}
	if _, report, err := native.LoadSource(f, wanted, d, native.LoadOptions{Convert: true}); err != nil || len(report.Restored) != len(wanted) || len(wanted) == 0 {
		t.Fatalf("%d of %d tensors: %v", len(report.Restored), len(wanted), err)
	}
	for _, p := range made.Params {
		if trained := isTrained(&settings, p); p.Frozen == trained || p.Grad.Given() != trained {
			t.Fatalf("%s: frozen %v, with a gradient %v", p.Name, p.Frozen, p.Grad.Given())
		}
	}
}

// isTrained reports whether a parameter is an adapter's, or trained with one.
func isTrained(c *config.Run, p *mpu.Param) bool {
	return strings.HasPrefix(p.Name, mpu.AdapterPrefix) || c.Model.Retrained.Has(p.Name)
}

// wanted are the case's values of a parameter: its gradient, or after training.
func (c *adapterCase) wanted(t *testing.T, s *trial, kind string, p *mpu.Param, expected func(name string) []float64) []float64 {
	t.Helper()
	if !c.folders {
		return expected(map[string]string{"grad": "grad.", "after": "adapter_after_8."}[kind] + p.Name)
	}
	f, err := peft.Open(filepath.Join(c.dir, kind), &s.config.Model, c.family)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	raw := make([]byte, 8*checkpoint.Volume(p.Global))
	if err := f.Read(p.Name, checkpoint.Uncut(p.Global), raw); err != nil {
		t.Fatal(err)
	}
	values := make([]float64, checkpoint.Volume(p.Global))
	safetensors.Decode(values, "F64", raw)
	return values
}

func (c *adapterCase) check(t *testing.T, open func() (*device.Device, error)) {
	t.Helper()
	expected, err := openTensors(filepath.Join(c.dir, "expected.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer expected.Close()
	worst := map[string]float64{}
	note := func(kind string, off float64) { worst[kind] = max(worst[kind], off) }
	read64 := func(name string) []float64 {
		values, err := expected.Float64(name)
		if err != nil {
			t.Fatal(err)
		}
		return values
	}
	without := c.adapted(t, open, false)
	if found, err := without.forward(without.step(0)); err != nil {
		t.Fatal(err)
	} else {
		note("logits_abs", apart(found.logits, read64(c.without)))
	}
	s := c.adapted(t, open, true)
	for i, want := range c.Expected.Curve {
		step, found, err := s.stepSeen(s.step(i))
		if err != nil {
			t.Fatal(err)
		}
		note("curve_loss_abs", math.Abs(step.Loss-want.Loss))
		note("curve_grad_norm_rel", math.Abs(step.Update.GradNorm/want.Norm-1))
		if i == 0 {
			note("logits_abs", apart(found.logits, read64(c.with)))
		}
		for _, p := range s.Params {
			if !isTrained(&s.config, p) {
				continue
			}
			if i == 0 {
				note("gradient_rel_to_tensor_norm", byNorm(inOrder(p, gradientOf(s.device, p, step.Factor)), c.wanted(t, s, "grad", p, read64)))
			}
			if i == len(c.Expected.Curve)-1 {
				note("adapter_after_rel_to_tensor_norm", byNorm(inOrder(p, read(s.device, p.Main)), c.wanted(t, s, "after", p, read64)))
			}
		}
	}
	c.judge(t, s.device.Name, worst)
}

// judge fails where a distance is beyond the case's tolerance.
func (c *adapterCase) judge(t *testing.T, device string, worst map[string]float64) {
	t.Helper()
	for kind, off := range worst {
		if limit := c.Tolerance[kind]; !(off <= limit) {
			t.Errorf("%s: %s is off by %.2g, the tolerance is %.0e", device, kind, off, limit)
		}
	}
	if len(worst) != 5 {
		t.Errorf("compared %v alone", worst)
	}
	t.Logf("%s: off by %v", device, worst)
}

// gradientOf is a parameter's gradient before clipping.
func gradientOf(d *device.Device, p *mpu.Param, factor float64) []float64 {
	g := read(d, p.Grad)
	for j := range g {
		g[j] /= factor
	}
	return g
}

// inOrder are a parameter's local values in the order of the global tensor.
func inOrder(p *mpu.Param, local []float64) []float64 {
	out := make([]float64, len(local))
	for _, piece := range p.Pieces {
		piece.Runs(p.Global, func(at, from, n int64) { copy(out[at:at+n], local[from:from+n]) })
	}
	return out
}

// apart is the largest difference.
func apart(got, want []float64) (most float64) {
	if len(got) != len(want) {
		return math.Inf(1)
	}
	for i := range want {
		most = max(most, math.Abs(got[i]-want[i]))
	}
	return most
}

// byNorm is the distance in norms of want.
func byNorm(got, want []float64) float64 {
	var d, n float64
	for i := range want {
		d += math.Pow(got[i]-want[i], 2)
		n += want[i] * want[i]
	}
	return math.Sqrt(d / n)
}
