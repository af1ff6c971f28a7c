package peft

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
	"monotron/mpu"
)

// Write writes the adapter that a checkpoint of ours holds to dir, as PEFT would. Each file
// appears complete or not at all.
func Write(dir string, src checkpoint.Source, c Config) error {
	adapters := src.Info().Model.Adapters
	if len(adapters) == 0 {
		return exitcode.Errorf(exitcode.Usage, "%s has no adapter", src.Info().Path)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	if err := writeWeights(filepath.Join(dir, WeightsFile), src); err != nil {
		return err
	}
	c.PeftType, c.TaskType, c.Inference = "LORA", "CAUSAL_LM", true
	if c.Bias == "" {
		c.Bias = "none"
	}
	if string(c.Init) == "" || string(c.Init) == "null" {
		c.Init = json.RawMessage("true")
	}
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return exitcode.With(exitcode.Internal, err)
	}
	return atomicfile.WriteFile(filepath.Join(dir, ConfigFile), 0o666, append(text, '\n'))
}

func writeWeights(path string, src checkpoint.Source) error {
	model := src.Info().Model
	list, err := outputsOf(src, model)
	if err != nil {
		return err
	}
	var infos []safetensors.Info
	for _, o := range list {
		infos = append(infos, safetensors.Info{Name: o.key, DType: "F32", Shape: o.shape})
	}
	w, err := safetensors.Create(path, infos, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	for _, o := range list {
		values, err := o.values()
		if err == nil {
			raw, _ := safetensors.Encode[float32](make([]byte, 0, 4*len(values)), "F32", values)
			_, err = w.Write(raw)
		}
		if err != nil {
			w.Abort()
			return err
		}
	}
	return w.Commit()
}

// output is a tensor of the file.
type output struct {
	key    string
	shape  []int64
	values func() ([]float32, error)
}

// outputsOf are the adapters' tensors, and after them the weights that were trained with them.
func outputsOf(src checkpoint.Source, model *spec.Model) (list []output, err error) {
	read := namedReader(src)
	// A, B and M of each adapter, with rows in PEFT's order.
	for _, t := range tensorsOf(model.Adapters) {
		list = append(list, output{t.key, t.kept, func() ([]float32, error) {
			ours, err := read(t.name)
			if err != nil || t.turn == nil {
				return ours, err
			}
			there := make([]float32, len(ours))
			for i, x := range ours {
				there[t.turned(int64(i))] = x
			}
			return there, nil
		}})
	}
	if model.Retrained == nil {
		return list, nil
	}
	mapping, err := mappingOf(model, model.Retrained.Family)
	if err != nil {
		return nil, err
	}
	// Weights in full, whose names tell whether the module has an adapter too.
	adapted := map[string]bool{}
	for _, a := range model.Adapters {
		adapted[a.Module] = true
	}
	for _, global := range model.Retrained.Names {
		for _, s := range mapping.SourcesOf(global) {
			keys := storedKeys(s.Name)
			key := keys[0]
			if adapted[s.Name[:strings.LastIndexByte(s.Name, '.')]] {
				key = keys[1]
			}
			list = append(list, output{key, s.Shape, func() ([]float32, error) {
				values, _, err := hf.ToHF(mapping, s.Name, read)
				return values, err
			}})
		}
	}
	return list, nil
}

// namedReader reads parameters of a checkpoint by their names: main parameters, which are exact, where it has them.
func namedReader(src checkpoint.Source) func(name string) ([]float32, error) {
	tensors := map[string]checkpoint.Tensor{}
	for _, t := range src.Tensors() {
		tensors[t.Name] = t
	}
	return func(name string) ([]float32, error) {
		for _, prefix := range []string{checkpoint.Main, checkpoint.Model} {
			if t, has := tensors[prefix+name]; has {
				return readAll(src, t.Name, t.DType, t.Shape)
			}
		}
		return nil, exitcode.Errorf(exitcode.BadData, "%s: tensor %s of the adapter is missing", src.Info().Path, name)
	}
}

// readAll reads a tensor of a source as f32.
func readAll(src checkpoint.Source, name, dtype string, shape []int64) ([]float32, error) {
	n := checkpoint.Volume(shape)
	raw := make([]byte, n*checkpoint.Width(dtype))
	if err := src.Read(name, mpu.Piece{From: make([]int64, len(shape)), Size: shape}, raw); err != nil {
		return nil, err
	}
	wide := make([]float64, n)
	if !safetensors.Decode(wide, dtype, raw) {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %s is %s, which cannot be read as numbers", src.Info().Path, name, dtype)
	}
	values := make([]float32, n)
	for i, v := range wide {
		values[i] = float32(v)
	}
	return values, nil
}
