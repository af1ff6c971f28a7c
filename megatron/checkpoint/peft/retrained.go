package peft

import (
	"fmt"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// Retrain finds the weights of m that are trained with its adapters, by PEFT's modules_to_save and bias; nil:
// none. A weight of ours that several of Hugging Face's make is trained where all of them are; one of which a part
// is named is refused.
func Retrain(m *spec.Model, family string, c Config, adapters []spec.Adapter) (*spec.Retrained, error) {
	mapping, err := mappingOf(m, family)
	if err != nil {
		return nil, err
	}
	r := resolver{c: c, m: m, used: map[string]bool{}}
	found := &spec.Retrained{Family: mapping.Family}
	for _, global := range mapping.GlobalNames() {
		// Of the weights that make one of ours, all are named or none.
		var named, not []string
		for _, s := range mapping.SourcesOf(global) {
			if r.retrains(s.Name, global, adapters) {
				named = append(named, s.Name)
			} else {
				not = append(not, s.Name)
			}
		}
		if len(named) == 0 {
			continue
		}
		if err := r.retrainable(global, named, not, adapters); err != nil {
			return nil, exitcode.With(exitcode.Usage, err)
		}
		if m.NormOnePlus && !mapping.Model.NormOnePlus && checkpoint.IsNormWeight(global) {
			return nil, exitcode.Errorf(exitcode.Usage, "module to save %s: norms of %s use the weight itself, but norms of this model use weight+1 (--apply-layernorm-1p); leave this module out", named[0], mapping.Family)
		}
		found.Names = append(found.Names, global)
	}
	// Everything that was named has matched something.
	for _, t := range c.Saved.List {
		if m.Tied && strings.HasSuffix("lm_head", t) {
			return nil, exitcode.Errorf(exitcode.Usage, "module to save %s: %s", t, tiedWeight)
		}
		if !r.used[t] {
			return nil, exitcode.Errorf(exitcode.Usage, "module to save %.80q matches no module: no module name in the model ends with it", t)
		}
	}
	if len(found.Names) == 0 {
		return nil, nil
	}
	return found, nil
}

const tiedWeight = "the embedding and the output layer of this model are one weight, which PEFT would train as two separate weights; leave this module out of the modules to save"

// retrains reports whether one of their tensors is trained.
func (r *resolver) retrains(name, global string, adapters []spec.Adapter) bool {
	module := name[:strings.LastIndexByte(name, '.')]
	if r.ends(module) {
		return true
	}
	if !strings.HasSuffix(name, ".bias") || checkpoint.IsBuffer(global) {
		return false
	}
	switch r.c.Bias {
	case "all":
		return true
	case "lora_only":
		for _, a := range adapters {
			if a.Module == module {
				return true
			}
		}
	}
	return false
}

// ends reports whether the name of the module, or of one around it, has the end of one to save: PEFT's rule.
func (r *resolver) ends(module string) (found bool) {
	for at := range len(module) + 1 {
		if at < len(module) && module[at] != '.' {
			continue
		}
		for _, t := range r.c.Saved.List {
			if t != "" && strings.HasSuffix(module[:at], t) {
				found, r.used[t] = true, true
			}
		}
	}
	return found
}

// saves reports whether the module is one to save, or in one, and therefore has no adapter.
func (r *resolver) saves(module string) bool {
	for _, t := range r.c.Saved.List {
		if t != "" && strings.Contains("."+module+".", "."+t+".") {
			return true
		}
	}
	return false
}

// retrainable refuses weights that cannot be trained with adapters.
func (r *resolver) retrainable(global string, named, not []string, adapters []spec.Adapter) error {
	switch {
	case len(not) > 0:
		return fmt.Errorf("%s should be trained with the adapter but %s should not, although in monotron both are one weight (%s); name all of them or none", named[0], not[0], global)
	case checkpoint.IsVocabulary(global) && r.m.Tied:
		return fmt.Errorf("module to save %s: %s", named[0], tiedWeight)
	case strings.Contains(global, ".local_experts."):
		return fmt.Errorf("module to save %s: experts cannot be trained in full together with an adapter; give them an adapter with target parameters", named[0])
	case checkpoint.IsBuffer(global):
		return fmt.Errorf("module to save %s: %s is not trained by gradients; leave this module out", named[0], global)
	}
	for _, a := range adapters {
		if a.Linear+".weight" == global {
			return fmt.Errorf("%s is both a module to save and a target module; name it only once", a.Module)
		}
	}
	return nil
}

// storedKeys are the names that a tensor of theirs may have in an adapter's file: PEFT keeps the bias of an adapted
// module under its base layer.
func storedKeys(name string) []string {
	at := strings.LastIndexByte(name, '.')
	return []string{mpu.AdapterPrefix + name, mpu.AdapterPrefix + name[:at] + ".base_layer" + name[at:]}
}
