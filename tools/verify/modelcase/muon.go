package modelcase

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/optimizer"
	"monotron/mpu"
)

// muonCase is case.json of golden/muon: steps of single matrices from inputs.safetensors (init.MATRIX,
// grad.STEP.MATRIX), compared with expected.safetensors (VARIANT.STEP.MATRIX); sets of coefficients; and curves of a
// model of another case.
type muonCase struct {
	Name       string
	Steps      int
	Variants   []muonVariant
	Sets       map[string][][3]float64 `json:"coefficient_sets"`
	Rows       json.RawMessage         `json:"qkv_split_rows_per_group"` // of the variants that split
	Curves     []muonCurve
	CurveModel string          `json:"curve_model"` // the folder of the case, and words about it
	ProducedBy json.RawMessage `json:"produced_by"`
}

// muonVariant are settings of the optimizer.
type muonVariant struct {
	Name         string
	Peer         string
	LR           float64
	Momentum     float64
	WeightDecay  float64 `json:"weight_decay"`
	Nesterov     bool
	Coefficients string
	Steps        int // of the iteration
	Scale        string
	Extra        float64
	SplitQKV     []int64 `json:"split_qkv"`
	Tolerance    float64 `json:"tolerance_abs_f32"`

	Second    json.RawMessage `json:"second_computation_differs_by"`
	Float     json.RawMessage `json:"own_float32_differs_by"`
	TorchHalf json.RawMessage `json:"bf16_iteration_of_torch_differs_by"`
}

// muonCurve is a training run by Muon, whose other parameters AdamW updates with a learning rate of their own.
type muonCurve struct {
	muonVariant
	Rest struct {
		LR          float64
		Betas       [2]float64
		Eps         float64
		WeightDecay float64 `json:"weight_decay"`
	} `json:"adamw_of_the_rest"`
	Curve []struct {
		Iteration int
		Loss      float64
		GradNorm  float64 `json:"grad_norm"`
	}
	Tolerance map[string]float64
	Noise     json.RawMessage `json:"loss_change_from_1e-7_noise_on_the_weights"`
}

// maxMuonSteps bounds the steps of a case.
const maxMuonSteps = 1000

// readMuon reads the case at path if it is of this kind; else it is nil.
func readMuon(path string) (*muonCase, error) {
	file := filepath.Join(path, "case.json")
	raw, err := exitcode.ReadFile(file, maxCaseBytes)
	var kind struct {
		Sets json.RawMessage `json:"coefficient_sets"`
	}
	if err != nil || json.Unmarshal(raw, &kind) != nil || kind.Sets == nil {
		return nil, nil // readCase says what is wrong
	}
	c := &muonCase{}
	if err := decode(raw, c); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", file, err)
	}
	if c.Steps < 1 || c.Steps > maxMuonSteps {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: steps must be from 1 to %d, not %d", file, maxMuonSteps, c.Steps)
	}
	return c, nil
}

// runMuon compares the sets, then each variant, then each curve.
func (r *run) runMuon() error {
	c := r.muon
	for _, name := range sorted(c.Sets) {
		if r.wanted(name) {
			r.report.exact("coefficients", name, optimizer.Coefficients(name), c.Sets[name])
		}
	}
	inputs, err := openTensors(r.path("", "inputs.safetensors"))
	if err != nil {
		return err
	}
	defer inputs.Close()
	expected, err := openTensors(r.path("", "expected.safetensors"))
	if err != nil {
		return err
	}
	defer expected.Close()
	for _, v := range c.Variants {
		if !r.wanted(v.Name) {
			continue
		}
		if err := r.muonSteps(v, c.Steps, inputs, expected); err != nil {
			return err
		}
	}
	folder, _, _ := strings.Cut(c.CurveModel, " ")
	for _, v := range c.Curves {
		if !r.wanted(v.Name) {
			continue
		}
		if err := r.muonCurve(filepath.Join(r.dir, folder), v); err != nil {
			return err
		}
	}
	return nil
}

// config is the variant's; torch.optim.Muon has its own names of scales.
func (v *muonVariant) config() optimizer.Config {
	c := optimizer.MuonConfig{Momentum: v.Momentum, Nesterov: v.Nesterov, Scale: v.Scale, Extra: v.Extra, Precision: "high", Coefficients: v.Coefficients, Steps: v.Steps}
	switch v.Scale {
	case "original":
		c.Scale = optimizer.ScaleShape
	case "match_rms_adamw":
		c.Scale, c.Extra = optimizer.ScaleSpectral, 0.2
	case "spectral_unclamped":
		c.Scale = optimizer.ScaleUnitRMS
	}
	return optimizer.Config{Kind: optimizer.Muon, Muon: c, AdamBeta1: 0.9, AdamBeta2: 0.95}
}

// muonSteps makes a variant's steps and compares the matrices after those that the file has.
func (r *run) muonSteps(v muonVariant, steps int, inputs, expected *tensors) error {
	if optimizer.Coefficients(v.Coefficients) == nil {
		return r.bad("%s: the coefficients %q are unknown", v.Name, v.Coefficients)
	}
	if len(v.SplitQKV) != 0 && len(v.SplitQKV) != 3 {
		return r.bad("%s: split_qkv %v must have three sizes", v.Name, v.SplitQKV)
	}
	params, err := r.muonParams(v, inputs)
	if err != nil {
		return err
	}
	d := r.device
	d.Arena.Close() // of the variant before
	o := optimizer.New(d, v.config(), params, device.F32, optimizer.Groups{Families: map[mpu.Family]optimizer.Family{}}, optimizer.Sharding{})
	if err := fillMuon(d, params, inputs, "init.", func(p *mpu.Param) device.Tensor { return p.Value }); err != nil {
		return err
	}
	for step := 1; step <= steps; step++ {
		if err := fillMuon(d, params, inputs, fmt.Sprintf("grad.%d.", step), func(p *mpu.Param) device.Tensor { return p.Grad }); err != nil {
			return err
		}
		if result, err := o.Step(optimizer.StepArgs{LR: v.LR, WeightDecay: v.WeightDecay, Factor: 1}); err != nil || result.Skipped {
			return cmp.Or(err, r.bad("%s: step %d has a gradient that is not finite", v.Name, step))
		}
		for _, p := range params {
			name := fmt.Sprintf("%s.%d.%s", v.Name, step, p.Name)
			if !expected.has(name) || strings.HasPrefix(v.Name, "torch-") && p.Name == "tiny_gradient" {
				continue // torch divides by 1e-7 at least, Megatron by 1e-15
			}
			want, err := expected.Float64(name)
			if err != nil {
				return err
			}
			var got []float64
			for _, x := range device.ReadSlice[float32](d, p.Value) {
				got = append(got, float64(x))
			}
			r.report.within(v.Name, name, got, want, v.Tolerance)
		}
	}
	return nil
}

// muonParams are the matrices that the file has the start of.
func (r *run) muonParams(v muonVariant, inputs *tensors) (params []*mpu.Param, err error) {
	for _, name := range inputs.Names() {
		matrix, ok := strings.CutPrefix(name, "init.")
		if !ok {
			continue
		}
		shape, err := inputs.shaped(name, -1, -1)
		if err != nil {
			return nil, err
		}
		p := mpu.Uncut(matrix, mpu.Init{}, shape...)
		if matrix == "qkv" && v.SplitQKV != nil {
			p.QKV = [3]int64(v.SplitQKV)
			if group := p.QKV[0] + p.QKV[1] + p.QKV[2]; slices.Min(v.SplitQKV) < 1 || shape[0]%group != 0 {
				return nil, r.bad("%s: split_qkv %v: each size must be at least 1, and their sum must divide the %d rows", v.Name, v.SplitQKV, shape[0])
			}
		}
		params = append(params, p)
	}
	if len(params) == 0 {
		return nil, exitcode.Errorf(exitcode.BadData, "%s has no tensor init.MATRIX", inputs.Path)
	}
	return params, nil
}

// fillMuon reads a tensor for each parameter.
func fillMuon(d *device.Device, params []*mpu.Param, from *tensors, prefix string, to func(*mpu.Param) device.Tensor) error {
	for _, p := range params {
		if _, err := from.shaped(prefix+p.Name, p.Shape...); err != nil {
			return err
		}
		values, err := from.Float32(prefix + p.Name)
		if err != nil {
			return err
		}
		device.WriteSlice(d, to(p), values)
	}
	return nil
}

// muonCurve trains the model of another case, whose gates and up projections are separate weights for the peer.
func (r *run) muonCurve(folder string, v muonCurve) error {
	c, err := readCase(folder)
	if err != nil {
		return err
	}
	line, err := c.commandLine(positionsOf(c))
	if err != nil {
		return err
	}
	line = append(line, words(fmt.Sprintf("--optimizer muon --lr %g --min-lr 0 --lr-decay-style constant --lr-warmup-iters 0 --lr-warmup-init 0 --clip-grad 0 --weight-decay %g "+
		"--muon-momentum %g --muon-coefficient-type %s --muon-num-ns-steps %d --muon-scale-mode %s --muon-extra-scale-factor %g --muon-fp32-matmul-prec high "+
		"--muon-split-gate --muon-scalar-lr-ratio %g --adam-beta1 %g --adam-beta2 %g --adam-eps %g", v.LR, v.WeightDecay, v.Momentum, v.Coefficients, v.Steps, v.Scale, v.Extra,
		v.Rest.LR/v.LR, v.Rest.Betas[0], v.Rest.Betas[1], v.Rest.Eps))...)
	if v.Nesterov {
		line = append(line, "--muon-nesterov")
	}
	// The model, weights and batches are those of the other case.
	of := &run{caseFile: c, device: r.device, open: r.open, report: r.report}
	t, err := of.trialOf(c, line)
	r.opened = append(r.opened, of.opened...)
	if err != nil {
		return err
	}
	if len(v.Curve) > len(t.batches) {
		return r.bad("%s: the curve has %d iterations, but there are batches for only %d", v.Name, len(v.Curve), len(t.batches))
	}
	for i, want := range v.Curve {
		step, _, err := t.stepSeen(t.step(i))
		if err != nil {
			return err
		}
		name := fmt.Sprintf("iteration %d", want.Iteration)
		r.report.number(v.Name+": loss", name, step.Loss, want.Loss, v.Tolerance["curve_loss_abs"])
		r.report.relative(v.Name+": gradient norm", name, step.Update.GradNorm, want.GradNorm, v.Tolerance["curve_grad_norm_rel"])
	}
	return nil
}
