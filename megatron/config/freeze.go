package config

import (
	"path"
	"slices"
	"strings"

	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/megatron/model"
	"monotron/mpu"
)

// Freezing is what --freeze-parameters leaves to train, of the complete model.
type Freezing struct {
	Frozen       []string // names
	Trained, All int64    // elements
}

// Parameters are the complete model's as one rank would hold them, without memory.
func (c *Step) Parameters() ([]*mpu.Param, error) {
	full, err := c.UncutStage()
	if err != nil {
		return nil, err
	}
	return full.Params(), nil
}

// UncutStage is the complete model on one rank, without memory.
func (c *Step) UncutStage() (*model.Stage, error) {
	layers := make([]int, c.Model.NumLayers)
	for i := range layers {
		layers[i] = i
	}
	return model.NewStage(nil, model.StageConfig{Model: &c.Model, Layers: layers, Embedding: true, Head: true}, model.Alone(nil))
}

// Freezes reports whether a parameter of this name is not trained.
func (c *Step) Freezes(name string) bool {
	if len(c.Model.Adapters) > 0 && !model.IsAdapter(name) && !c.Model.Retrained.Has(name) {
		return true // an adapter is trained instead
	}
	return slices.ContainsFunc(c.FreezeParameters, func(pattern string) bool { return matches(pattern, name) })
}

// matches: shell patterns stop at slashes alone, and names have none.
func matches(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// Freezing holds the patterns against all names, so that every rank finds the same
// mistakes, whatever part of the model it has.
func (c *Step) Freezing() (f Freezing, err error) {
	all, err := c.Parameters()
	if err != nil {
		return f, err
	}
	if err := checkPatterns(c.FreezeParameters, all); err != nil {
		return f, err
	}
	for _, p := range all {
		f.All += p.Len()
		if c.Freezes(p.Name) {
			f.Frozen = append(f.Frozen, p.Name)
		} else {
			f.Trained += p.Len()
		}
	}
	if f.Trained == 0 {
		return f, exitcode.Errorf(exitcode.Usage, "--freeze-parameters %s leaves no parameter to train; freeze fewer", strings.Join(c.FreezeParameters, " "))
	}
	return f, nil
}

// checkPatterns refuses a malformed pattern, and one that matches no parameter.
func checkPatterns(patterns []string, all []*mpu.Param) error {
	names := argv.Set{}
	for _, p := range all {
		names[p.Name] = argv.One
	}
	for _, pattern := range patterns {
		if _, err := path.Match(pattern, ""); err != nil {
			return exitcode.Errorf(exitcode.Usage, "--freeze-parameters %q is not a shell pattern; use *, ?, [a-z] and [^a-z]", pattern)
		}
		if slices.ContainsFunc(all, func(p *mpu.Param) bool { return matches(pattern, p.Name) }) {
			continue
		}
		near := argv.Nearest(names, pattern)
		if near == nil {
			near = []string{all[0].Name, all[len(all)/2].Name, all[len(all)-1].Name}
		}
		return exitcode.Errorf(exitcode.Usage, "--freeze-parameters %q matches no parameter of the model; names are like %s", pattern, strings.Join(near, ", "))
	}
	return nil
}
