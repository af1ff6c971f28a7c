package compare

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"monotron/megatron/checkpoint"
)

// Setting is a value of the state, or of the run's settings, that differs.
type Setting struct {
	Name string `json:"name"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// absent stands for a value that one side does not have.
const absent = "-"

// State lists what differs in where two runs stand: iteration, samples,
// schedule, loss scale.
func State(a, b checkpoint.State) []Setting {
	return settings(progress(a), progress(b))
}

func progress(s checkpoint.State) map[string]any {
	all := map[string]any{"iteration": s.Iteration, "consumed_train_samples": s.ConsumedTrain, "consumed_valid_samples": s.ConsumedValid,
		"skipped_train_samples": s.SkippedTrain}
	for name, raw := range map[string]json.RawMessage{"scheduler": s.Scheduler, "scaler": s.Scaler, "optimizer_steps": s.Extra[checkpoint.ExtraAdamSteps]} {
		flatten(all, name, raw)
	}
	return all
}

// Config lists what differs in the settings of two runs: the model's shape, and
// the run's configuration or Megatron's arguments where both sides have them.
func Config(a, b checkpoint.Source) []Setting {
	x, y := map[string]any{}, map[string]any{}
	model(x, a)
	model(y, b)
	s, t := a.State(), b.State()
	if len(s.Config) > 0 && len(t.Config) > 0 {
		flatten(x, "config", s.Config)
		flatten(y, "config", t.Config)
	}
	if p, q := s.Extra[checkpoint.ExtraArgs], t.Extra[checkpoint.ExtraArgs]; len(p) > 0 && len(q) > 0 {
		flatten(x, "args", p)
		flatten(y, "args", q)
	}
	for name := range x { // said once, under model
		if other, ok := x["model."+trim(name)]; ok && fmt.Sprint(other) == fmt.Sprint(x[name]) {
			delete(x, name)
			delete(y, name)
		}
	}
	return settings(x, y)
}

func trim(name string) string {
	const copied = "config.Model."
	if len(name) > len(copied) && name[:len(copied)] == copied {
		return name[len(copied):]
	}
	return "\x00"
}

func model(all map[string]any, src checkpoint.Source) {
	if m := src.Info().Model; m != nil {
		if raw, err := json.Marshal(m); err == nil {
			flatten(all, "model", raw)
		}
	}
}

// flatten adds the leaves of a JSON value under dotted names.
func flatten(all map[string]any, name string, raw json.RawMessage) {
	var value any
	if len(raw) == 0 || json.Unmarshal(raw, &value) != nil {
		return
	}
	leaves(all, name, value)
}

func leaves(all map[string]any, name string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			leaves(all, name+"."+key, inner)
		}
	case nil:
	default:
		all[name] = v
	}
}

func settings(a, b map[string]any) []Setting {
	names := maps.Clone(a)
	maps.Copy(names, b)
	var list []Setting
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if x, y := text(a, name), text(b, name); x != y {
			list = append(list, Setting{name, x, y})
		}
	}
	return list
}

func text(all map[string]any, name string) string {
	v, ok := all[name]
	if !ok {
		return absent
	}
	if f, ok := v.(float64); ok {
		return number(f)
	}
	return fmt.Sprint(v)
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }
