// Package checkpointcase runs a folder of golden/checkpoint: it opens the
// checkpoint as it is, and compares files, settings, the logits of the case's
// prompt and the optimizer's moments with what the case says.
package checkpointcase

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/inference"
	"monotron/megatron/spec"
	"monotron/tools/verify/modelcase"
)

// Opener makes a device.
type Opener func() (*device.Device, error)

// caseFile is the part of case.json that is checked here.
type caseFile struct {
	Case      string          `json:"case"`
	Format    string          `json:"format"`
	Model     json.RawMessage `json:"model"`
	Iteration *int64          `json:"iteration"`
	Files     []struct {
		Path   string `json:"path"`
		SHA256 string `json:"sha256"`
	} `json:"files"`
	Optimizer json.RawMessage `json:"optimizer"`
	Prompt    []int32         `json:"prompt"`
	Expected  struct {
		File      string  `json:"file"`
		Tolerance float64 `json:"tolerance_f32"`
	} `json:"expected"`
}

const maxCase = 16 << 20

// Is reports whether dir is a case of this kind.
func Is(dir string) bool {
	c, err := read(dir)
	return err == nil && c.Format != "" && c.Expected.File != ""
}

func read(dir string) (*caseFile, error) {
	path := filepath.Join(dir, "case.json")
	raw, err := exitcode.ReadFile(path, maxCase)
	if err != nil {
		return nil, err
	}
	c := &caseFile{}
	if err := json.Unmarshal(raw, c); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", path, err)
	}
	return c, nil
}

// run is one case under way.
type run struct {
	*caseFile
	dir    string
	open   Opener
	src    checkpoint.Source
	want   *safetensors.File
	report *modelcase.Report
}

// Run compares.
func Run(dir string, open Opener) (*modelcase.Report, error) {
	c, err := read(dir)
	if err != nil {
		return nil, err
	}
	r := &run{caseFile: c, dir: dir, open: open, report: &modelcase.Report{Case: c.Case}}
	if r.want, err = safetensors.Open(filepath.Join(dir, c.Expected.File)); err != nil {
		return nil, err
	}
	defer r.want.Close()
	if r.src, err = all.Open(dir, checkpoint.OpenOptions{Step: -1}); err != nil {
		return nil, err
	}
	defer r.src.Close()
	for _, step := range []func() error{r.files, r.settings, r.moments, r.logits} {
		if err := step(); err != nil {
			return r.report, err
		}
	}
	return r.report, nil
}

func (r *run) add(group, name string, worst, tolerance float64, note string) {
	r.report.Checks = append(r.report.Checks, modelcase.Check{Group: group, Name: name, Error: worst, Tolerance: tolerance, OK: worst <= tolerance, Note: note})
}

// same compares anything by its text.
func (r *run) same(group, name string, got, want any) {
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		r.add(group, name, 1, 0, fmt.Sprintf("got %s, want %s", g, w))
		return
	}
	r.add(group, name, 0, 0, "")
}

// files compares checksums: the case is what was written.
func (r *run) files() error {
	for _, f := range r.Files {
		if !filepath.IsLocal(f.Path) {
			return exitcode.Errorf(exitcode.BadData, "%s: %q leads out of the folder", r.dir, f.Path)
		}
		sum, err := digest(filepath.Join(r.dir, f.Path))
		if err != nil {
			return err
		}
		r.same("files", f.Path, sum, f.SHA256)
	}
	return nil
}

func digest(path string) (string, error) {
	f, err := exitcode.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", exitcode.With(exitcode.IO, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// settings compares the model's shape and the iteration.
func (r *run) settings() error {
	want, err := hf.ParseConfig(filepath.Join(r.dir, "case.json")+": model", r.Model)
	if err != nil {
		return err
	}
	got := r.src.Info().Model
	// What a reader may get wrong, one by one.
	for _, c := range []struct {
		name string
		of   func(m *spec.Model) any
	}{
		{"layers", func(m *spec.Model) any { return m.NumLayers }},
		{"hidden size", func(m *spec.Model) any { return m.HiddenSize }},
		{"intermediate size", func(m *spec.Model) any { return m.FFNHiddenSize }},
		{"heads", func(m *spec.Model) any { return []int{m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels} }},
		{"vocabulary", func(m *spec.Model) any { return m.VocabSize }},
		{"positions", func(m *spec.Model) any { return fmt.Sprint(m.Position, m.MaxPositions) }},
		{"norm", func(m *spec.Model) any { return fmt.Sprint(m.Normalization, m.NormEpsilon) }},
		{"activation", func(m *spec.Model) any { return m.Activation }},
		{"tied", func(m *spec.Model) any { return m.Tied }},
		{"rotary", func(m *spec.Model) any {
			if m.Position != spec.PositionRope {
				return ""
			}
			return fmt.Sprint(m.RotaryBase, m.RotaryPercent, m.RopeScaling)
		}},
		{"experts", func(m *spec.Model) any {
			if m.Experts == nil {
				return ""
			}
			return []int{m.Experts.Num, m.Experts.TopK, m.Experts.FFNHiddenSize}
		}},
	} {
		r.same("settings", c.name, c.of(got), c.of(want.Model))
	}
	if r.Iteration != nil {
		r.same("settings", "iteration", r.src.State().Iteration, *r.Iteration)
	}
	return checkpoint.Check(r.src)
}

// moments follow a rule: exp_avg = w*2^-5, exp_avg_sq = w*w*2^-12 in f32, w the
// f32 weight.
func (r *run) moments() error {
	if !strings.HasPrefix(strings.TrimSpace(string(r.Optimizer)), "{") {
		return nil // the case has none
	}
	have := map[string]checkpoint.Tensor{}
	for _, t := range r.src.Tensors() {
		have[t.Name] = t
	}
	found := 0
	for _, t := range checkpoint.Expected(r.src.Info().Model) {
		m, ok1 := have[checkpoint.ExpAvg+t.Name]
		v, ok2 := have[checkpoint.ExpSq+t.Name]
		w, ok3 := have[checkpoint.Main+t.Name]
		if !ok3 {
			w = have[checkpoint.Model+t.Name]
		}
		if !ok1 || !ok2 || w.DType != "F32" {
			continue
		}
		found++
		worst, err := r.rule(w, m, v)
		if err != nil {
			return err
		}
		r.add("moments", t.Name, worst, 0, "")
	}
	r.same("moments", "tensors with moments", found, len(checkpoint.Expected(r.src.Info().Model)))
	return nil
}

func (r *run) rule(w, m, v checkpoint.Tensor) (worst float64, err error) {
	var values [3][]float32
	for i, t := range []checkpoint.Tensor{w, m, v} {
		if values[i], err = checkpoint.ReadFloat32(r.src, t); err != nil {
			return 0, err
		}
	}
	for i, x := range values[0] {
		square := x * x // rounded to f32 first, as the rule was made
		worst = max(worst, math.Abs(float64(values[1][i])-float64(x)/32), math.Abs(float64(values[2][i])-float64(square)/4096))
	}
	return worst, nil
}

// logits runs the prompt from the stored weights and, where the case has them,
// from the main parameters.
func (r *run) logits() error {
	if err := r.compare("logits", r.src); err != nil {
		return err
	}
	if _, ok := r.want.Info("logits_master"); ok {
		return r.compare("logits_master", checkpoint.Retype(r.src, "F32"))
	}
	return nil
}

func (r *run) compare(name string, src checkpoint.Source) error {
	want, err := r.want.Float64(name)
	if err != nil {
		return err
	}
	// The checkpoint as a model.
	d, err := r.open()
	if err != nil {
		return err
	}
	defer d.Close()
	r.report.Device = d.Name
	m, err := inference.FromSource(d, src, inference.LoadOptions{})
	if err != nil {
		return err
	}
	var got []float32
	err = m.Logits(r.Prompt, func(_ int, logits []float32) error {
		got = append(got, logits...)
		return nil
	})
	if err != nil {
		return err
	}
	if len(got) != len(want) {
		return exitcode.Errorf(exitcode.BadData, "%s: %q has %d numbers, but the model gives %d", r.want.Path, name, len(want), len(got))
	}
	// The largest error of each position.
	per := len(want) / len(r.Prompt)
	for p := range r.Prompt {
		worst := 0.0
		for i := p * per; i < (p+1)*per; i++ {
			if d := math.Abs(float64(got[i]) - want[i]); !(d <= worst) {
				worst = d
			}
		}
		r.add(name, fmt.Sprintf("position %d", p), worst, r.Expected.Tolerance, "")
	}
	return nil
}
