package peft

import (
	"encoding/json"
	"os"
	"path/filepath"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/internal/safetensors"
	"monotron/megatron/checkpoint"
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
	c.PeftType, c.TaskType, c.Bias, c.Inference = "LORA", "CAUSAL_LM", "none", true
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
	from, dtypes := adapterNames(src), map[string]string{}
	for _, t := range src.Tensors() {
		dtypes[t.Name] = t.DType
	}
	var infos []safetensors.Info
	list := Tensors(src.Info().Model.Adapters)
	for _, t := range list {
		infos = append(infos, safetensors.Info{Name: t.Name, DType: "F32", Shape: t.Shape})
	}
	w, err := safetensors.Create(path, infos, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	for _, t := range list {
		values, err := readAll(src, from[t.Name], dtypes[from[t.Name]], t.Shape)
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
