//go:build cgo

package engine

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"monotron/csrc/cuda"
	"monotron/csrc/device"
	"monotron/megatron/config"
	"monotron/megatron/model"
	"monotron/megatron/spec"
	"monotron/megatron/telemetry"
	"monotron/mpu/health/inject"
)

// gpu is the device that MONOTRON_CUDA_LIBRARY names, emulated or not.
func gpu(t *testing.T) *device.Device {
	t.Helper()
	if os.Getenv(cuda.LibraryVariable) == "" {
		t.Skipf("%s names no library; make test-emu and make test-gpu set it", cuda.LibraryVariable)
	}
	d, err := cuda.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// trace is all that a run of a few steps computes.
type trace struct {
	reported []string // losses, norms, scales of each step
	tensors  map[string][]byte
	engine   *Engine
}

const tracedSteps = 3

// traced trains c, with graphs or without, and evaluates between the steps on
// micro-batches of another size.
func traced(t *testing.T, c config.Step, graphs bool) trace {
	t.Helper()
	d := gpu(t)
	if displaced > 0 {
		d.Arena.Alloc(device.Workspace, device.U16, displaced/2)
	}
	e := newTestEngineOn(t, d, c)
	if graphs {
		if why := e.Capture(); why != "" {
			t.Fatal(why)
		}
	}
	out := trace{tensors: map[string][]byte{}, engine: e}
	for range tracedSteps {
		r, err := e.Step(testBatch(4, 2, 8))
		if err != nil {
			t.Fatal(err)
		}
		loss, tokens, err := e.Loss(testBatch(3, 3, 8))
		if err != nil {
			t.Fatal(err)
		}
		out.reported = append(out.reported, fmt.Sprint(r.Loss, r.Update, r.Scale, loss, tokens))
	}
	for _, p := range e.Params {
		for name, x := range map[string]device.Tensor{"value": p.Value, "gradient": p.Grad, "main parameter": p.Main} {
			raw := make([]byte, x.Bytes())
			e.device.Read(raw, x)
			out.tensors[p.Name+" "+name] = raw
		}
	}
	if err := e.device.Sync(); err != nil {
		t.Fatal(err)
	}
	return out
}

// Claim: a run whose micro-batches and updates are graphs has, bit for bit, the losses,
// gradients and weights of the run without: with dropout, gradient accumulation, a loss
// scale that is too high at first, recomputation; and they were launched, not called.
func TestGraphsChangeNothing(t *testing.T) {
	dropout := func(c *config.Step) { c.Model.HiddenDropout, c.Model.AttentionDropout = 0.1, 0.1 }
	for name, set := range map[string]func(*config.Step){
		"f32": func(c *config.Step) { dropout(c); c.Optimizer.DecoupledLR = 0.02 },
		"bf16": func(c *config.Step) {
			dropout(c)
			c.Precision, c.Recompute = config.BF16, model.Recompute{Granularity: "full", Method: "uniform", NumLayers: 1}
		},
		"fp16, skips": func(c *config.Step) {
			c.Precision, c.CheckForNaN = config.FP16, false
			c.Optimizer.InitialLossScale, c.Optimizer.MinLossScale, c.Optimizer.LossScaleWindow, c.Optimizer.LossHysteresis = 1<<32, 1, 1000, 1
			c.Model.Activation, c.Model.Normalization, c.Model.Position = spec.Swiglu, spec.RMSNorm, spec.PositionRope
			c.Model.RotaryPercent, c.Model.RotaryBase, c.Model.LinearBias, c.Model.QKVBias = 1, 10000, false, false
			c.Recompute = model.Recompute{Granularity: "selective", Modules: []string{"mlp", "layernorm"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := tinyConfig()
			set(&c)
			plain, graphs := traced(t, c, false), traced(t, c, true)
			for i := range plain.reported {
				if plain.reported[i] != graphs.reported[i] {
					t.Errorf("step %d: %s with graphs, %s without", i+1, graphs.reported[i], plain.reported[i])
				}
			}
			for name, raw := range plain.tensors {
				if !bytes.Equal(raw, graphs.tensors[name]) {
					t.Errorf("%s differs with graphs", name)
				}
			}
			s := graphs.engine.graphs
			if s.micro.Runs != 2*tracedSteps-1 || s.update.Runs != tracedSteps-1 || s.micro.Nodes < 50 || s.update.Nodes < 5 {
				t.Errorf("%d launches of %d, %d of %d: %v, %v", s.micro.Runs, s.micro.Nodes, s.update.Runs, s.update.Nodes, s.micro.Err, s.update.Err)
			}
			if skipped := graphs.engine.Optimizer.Steps < tracedSteps; skipped != (c.Precision == config.FP16) {
				t.Errorf("%d updates in %d steps", graphs.engine.Optimizer.Steps, tracedSteps)
			}
			if news := graphs.engine.GraphNews(); len(news) != 1 || !strings.HasPrefix(news[0], "CUDA graphs: ") || graphs.engine.GraphNews() != nil {
				t.Errorf("news: %q", news)
			}
		})
	}
}

// displaced is bytes that a traced run takes before all else.
var displaced int64

// Claim: a batch of another shape is trained on without a graph, and the log says so once;
// the graph is used again afterwards.
func TestGraphOfAnotherShape(t *testing.T) {
	e := newTestEngineOn(t, gpu(t), tinyConfig())
	if why := e.Capture(); why != "" {
		t.Fatal(why)
	}
	for _, size := range []int{2, 4, 1, 2} {
		if _, err := e.Step(testBatch(4, size, 8)); err != nil {
			t.Fatal(err)
		}
	}
	if news := e.GraphNews(); len(news) != 2 || !strings.Contains(news[0], "4 samples of 8") || e.graphs.micro.Runs != 3 {
		t.Errorf("%d launches; %q", e.graphs.micro.Runs, news)
	}
}

// Claim: where there can be no graphs, one line says why.
func TestNoGraphsSaysWhy(t *testing.T) {
	for want, set := range map[string]func(*Engine){
		"the ref device does not support them": func(*Engine) {},
		"gpipe":                                func(e *Engine) { e.config.Layout.Schedule = "gpipe" },
		"global_aux_loss": func(e *Engine) {
			e.config.Model.Experts = &spec.Experts{Balancing: []string{spec.GlobalAuxLoss}}
		},
		"--inject":             func(e *Engine) { e.rank.Inject = &inject.Injector{} },
		"--profile":            func(e *Engine) { e.Timers.Trace = &telemetry.Trace{} },
		"--timing-log-level 2": func(e *Engine) { e.Timers = telemetry.NewTimers(telemetry.LevelMicro) },
	} {
		e := newTestEngine(t, tinyConfig())
		set(e)
		if why := e.Capture(); !strings.Contains(why, want) || e.graphs != nil || e.Optimizer.Graph != nil {
			t.Errorf("%q, want %q", why, want)
		}
	}
}
