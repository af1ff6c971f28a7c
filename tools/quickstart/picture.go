package main

import (
	"bytes"
	"path/filepath"

	"monotron/megatron/report"
	"monotron/whole"
)

const plotFile = folder + "/loss.png"

// picture draws the loss of the whole training: what the killed run did up to
// the checkpoint that was kept, then what the resumed run did.
func picture() error {
	before, err := readSteps(filepath.Join(setAside, filepath.Base(stepsFile)))
	if err != nil {
		return err
	}
	after, err := readSteps(stepsFile)
	if err != nil {
		return err
	}
	curves := report.LossSeries(joined(before, after))
	text, err := report.PlotTerminal("loss by step", 72, 14, false, curves)
	if err != nil {
		return err
	}
	say("%s", text)
	var image bytes.Buffer
	if err := report.PlotPNG(&image, "a small GPT on Go's sources", "step", curves); err != nil {
		return err
	}
	if err := whole.WriteFile(plotFile, 0o666, image.Bytes()); err != nil {
		return err
	}
	say("\nThe same as a picture: %s", plotFile)
	return nil
}

// joined is before, up to where after begins, and after.
func joined(before, after []report.Entry) []report.Entry {
	if len(after) == 0 {
		return before
	}
	var all []report.Entry
	for _, s := range before {
		if s.Iteration < after[0].Iteration {
			all = append(all, s)
		}
	}
	return append(all, after...)
}
