package training

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/native"
	"monotron/mpu"
)

// scaledLayer is the layer whose scales or histories of --fp8-recipe delayed a checkpoint's tensor has.
func scaledLayer(name string) (layer string, is bool) {
	if layer, is = strings.CutPrefix(name, mpu.StoredFP8Scale); is {
		return layer, true
	}
	return strings.CutPrefix(name, mpu.StoredFP8History)
}

func isScale(name string) bool {
	_, is := scaledLayer(name)
	return is
}

// tellScales notes that the checkpoint has no scales, where the run needs them.
func (r *Run) tellScales(report native.Report) {
	if slices.ContainsFunc(report.Missing, isScale) {
		r.log.note("the checkpoint has no scales of --fp8-recipe delayed: they start at 1, and their histories are empty")
	}
}

// sameHistories explains a misfit, err, by the length of histories.
func (r *Run) sameHistories(state native.State, err error) error {
	var before struct {
		FP8 struct {
			Recipe  string
			Delayed struct{ Length int }
		}
	}
	now := &r.Config.FP8
	if !errors.Is(err, native.ErrMisfit) || json.Unmarshal(state.Config, &before) != nil {
		return nil
	}
	if old := before.FP8.Delayed.Length; before.FP8.Recipe == "delayed" && now.Recipe == "delayed" && old != now.Delayed.Length {
		return exitcode.Errorf(exitcode.Usage, "--fp8-amax-history-len must be %d, not %d, because the histories in the checkpoint have that length", old, now.Delayed.Length)
	}
	return nil
}
