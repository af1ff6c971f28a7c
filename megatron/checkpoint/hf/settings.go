package hf

import (
	"encoding/json"
	"path/filepath"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
)

// Settings is the config.json of an open checkpoint whose model is of a family: the
// checkpoint's own, where it is such a folder, completed by what Write would say; values
// are as encoding/json decodes them. own has the keys of the folder's file; nil
// without one.
func Settings(info checkpoint.Info, family string) (config map[string]any, own map[string]any, err error) {
	positions := info.Model.Context
	if info.Model.MaxPositions > 0 {
		positions = info.Model.MaxPositions
	}
	// What an export would say.
	text, err := json.Marshal(configOf(info.Model, ExportOptions{Family: family, DType: "F32", MaxPositions: positions}))
	if err != nil {
		return nil, nil, exitcode.With(exitcode.Internal, err)
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return nil, nil, exitcode.With(exitcode.Internal, err)
	}
	if info.Format != checkpoint.HF {
		return config, nil, nil
	}
	// Keys of the folder's own file go before.
	if own, err = readObject(filepath.Join(info.Path, ConfigName)); err != nil {
		return nil, nil, err
	}
	if own["model_type"] != family {
		return config, nil, nil
	}
	for key, v := range own {
		if v != nil {
			config[key] = v
		}
	}
	return config, own, nil
}

// ChooseFamily is the family that a checkpoint is written as: the asked one, else the
// source's where the model still is of it, else the natural one.
func ChooseFamily(info checkpoint.Info, o checkpoint.WriteOptions) (string, error) {
	return chooseFamily(info, o)
}
