package main

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"monotron/fault"
	"monotron/megatron/report"
)

// compare holds what the resumed run did again against what the killed run had
// done: every loss and gradient norm, and every byte of weights and optimizer.
// from is where the steps of the resumed run begin.
func compare(p plan, from int64) error {
	before, err := readSteps(filepath.Join(setAside, filepath.Base(stepsFile)), 0)
	if err != nil {
		return err
	}
	after, err := readSteps(stepsFile, from)
	if err != nil {
		return err
	}
	steps, err := sameSteps(before, after)
	if err != nil {
		return err
	}
	if want := p.dies() - p.kept(); steps < want {
		return fault.Errorf(fault.Internal, "only %d steps were trained twice; %d were to be compared", steps, want)
	}
	name := iterFolder(p.lost())
	files, size, err := sameTensors(filepath.Join(setAside, "checkpoint", name), filepath.Join(checkpoints, name))
	if err != nil {
		return err
	}
	say("Bit for bit: the %d steps trained twice gave the same losses and gradient norms, and both", steps)
	say("checkpoints %d the same weights and optimizer state (%d files, %.1f MB).", p.lost(), files, float64(size)/1e6)
	return nil
}

// sameSteps compares the training steps that are in both and counts them.
func sameSteps(before, after []report.Entry) (count int, err error) {
	first := map[int]report.Entry{}
	for _, s := range before {
		if s.Validation == "" {
			first[s.Iteration] = s
		}
	}
	for _, s := range after {
		was, both := first[s.Iteration]
		if s.Validation != "" || !both {
			continue
		}
		if !sameNumber(was.Loss["lm loss"], s.Loss["lm loss"]) || (was.GradNorm == nil) != (s.GradNorm == nil) ||
			was.GradNorm != nil && !sameNumber(*was.GradNorm, *s.GradNorm) {
			return 0, fault.Errorf(fault.Differs, "step %d after the resume differs: loss %v, before the kill %v",
				s.Iteration, s.Loss["lm loss"], was.Loss["lm loss"])
		}
		count++
	}
	return count, nil
}

func sameNumber(a, b report.Number) bool {
	return math.Float64bits(float64(a)) == math.Float64bits(float64(b))
}

// sameTensors compares the tensor files of two checkpoints byte by byte.
func sameTensors(a, b string) (files int, size int64, err error) {
	err = filepath.WalkDir(a, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".safetensors" {
			return err
		}
		rel, err := filepath.Rel(a, path)
		if err != nil {
			return err
		}
		x, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		y, err := os.ReadFile(filepath.Join(b, rel))
		if err != nil {
			return err
		}
		if !bytes.Equal(x, y) {
			return fault.Errorf(fault.Differs, "%s differs between the killed run's and the resumed run's checkpoint", rel)
		}
		files, size = files+1, size+int64(len(x))
		return nil
	})
	if err == nil && files == 0 {
		err = fault.Errorf(fault.Internal, "%s holds no tensor files", a)
	}
	return files, size, err
}
