package modelcase

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/config"
	"monotron/megatron/model"
)

// routerBiases are the expert biases that a case's routers start with, by global layer.
type routerBiases map[int][]float64

// UnmarshalJSON takes an object whose keys are layers, or a list with an entry for each
// layer, null or empty where a layer has no router.
func (b *routerBiases) UnmarshalJSON(raw []byte) error {
	*b = routerBiases{}
	var list [][]float64
	if json.Unmarshal(raw, &list) == nil {
		for layer, values := range list {
			if len(values) > 0 {
				(*b)[layer] = values
			}
		}
		return nil
	}
	var byName map[string][]float64
	if err := json.Unmarshal(raw, &byName); err != nil {
		return err
	}
	for name, values := range byName {
		layer, err := strconv.Atoi(name)
		if err != nil {
			return err
		}
		(*b)[layer] = values
	}
	return nil
}

// fillBuffers gives the routers of stages the biases that the case names, or those of its
// weights file; without any they start at 0.
func (w *weights) fillBuffers(d *device.Device, stages []*model.Stage) error {
	for _, s := range stages {
		for _, b := range s.Buffers(false) {
			values, err := w.buffer(strings.TrimPrefix(b.Name, checkpoint.Model))
			if err != nil {
				return err
			}
			if values == nil {
				continue
			}
			if int64(len(values)) != b.Tensor.Len() {
				return exitcode.Errorf(exitcode.BadData, "%s: %s has %d elements, but the model needs %d", w.file.Path, b.Name, len(values), b.Tensor.Len())
			}
			device.WriteSlice(d, b.Tensor, values)
		}
	}
	return nil
}

// buffer is a router's start; nil where the case gives none.
func (w *weights) buffer(global string) ([]float32, error) {
	if w.biases != nil {
		var values []float32
		for _, v := range w.biases[layerOf(w.model, global)] {
			values = append(values, float32(v))
		}
		return values, nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.names.family == nil && !w.file.has(global) {
		return nil, nil
	}
	return w.names.fromFile(w.file, global)
}

// checkNames refuses a weights file with a tensor that the model has no use for: a case
// whose weights are left out would compare another model.
func (w *weights) checkNames(config *config.Run) error {
	known := map[string]bool{paddingRows: true}
	if w.names.family != nil {
		for _, source := range w.names.family.Stored() {
			known[source.Name] = true
		}
	} else {
		for _, t := range checkpoint.Expected(&config.Model) {
			known[t.Name] = true
		}
	}
	unknown := slices.DeleteFunc(w.file.Names(), func(name string) bool { return known[name] })
	if len(unknown) > 0 {
		return exitcode.Errorf(exitcode.BadData, "%s: %d tensors are not part of the model, such as %q", w.file.Path, len(unknown), unknown[0])
	}
	return nil
}
