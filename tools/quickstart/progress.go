package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"time"

	"monotron/fault"
	"monotron/megatron/report"
)

// follow shows a run's progress until its step file holds step `until`, or the
// run has ended well. total is the length of the whole training.
// from is where its steps begin in that file.
func follow(run *process, from int64, until, total int) error {
	t := tail{path: stepsFile, offset: from}
	for {
		var ended bool
		select {
		case err := <-run.ended:
			run.ended <- err
			if err != nil {
				return run.failure(err)
			}
			ended = true
		case <-time.After(50 * time.Millisecond):
		}
		fresh, err := t.read()
		if err != nil {
			return err
		}
		for _, s := range fresh {
			t.show(s, total)
			if s.Validation == "" && s.Iteration >= until {
				return nil
			}
		}
		if ended {
			return nil
		}
	}
}

// tail reads a step file that grows.
type tail struct {
	path   string
	offset int64
	recent []report.Entry // training steps since the last line
	shown  int            // step of the last line; the end is evaluated twice
}

// read returns the steps since the last call; a line still being written waits.
func (t *tail) read() (steps []report.Entry, err error) {
	file, err := os.Open(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fault.With(fault.IO, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.NewSectionReader(file, t.offset, 1<<30))
	if err != nil {
		return nil, fault.With(fault.IO, err)
	}
	for {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			return steps, nil
		}
		var s report.Entry
		err := json.Unmarshal(line, &s)
		if err == nil && s.Trained == nil && s.Validation == "" {
			err = errors.New("it says nothing of a step")
		}
		if err != nil {
			return nil, fault.Errorf(fault.BadData, "%s, byte %d: %w", t.path, t.offset, err)
		}
		steps, text, t.offset = append(steps, s), rest, t.offset+int64(len(line))+1
	}
}

// show prints a line for an evaluation: with the means of the steps since the line
// before, so that steps trained twice show the same loss twice.
func (t *tail) show(s report.Entry, total int) {
	switch s.Validation {
	case "":
		t.recent = append(t.recent, s)
	case "validation":
		if s.Iteration == t.shown {
			return
		}
		t.shown = s.Iteration
		loss, speed, validation := 0.0, 0.0, float64(s.Loss["lm loss"])
		for _, r := range t.recent {
			loss += float64(r.Loss["lm loss"]) / float64(len(t.recent))
			speed += float64(r.TokensPerSecond) / float64(len(t.recent))
		}
		say("  step %4d of %d   loss %.3f   validation %.3f (%.3f bits a byte)   %6.0f tokens/s   %3.0f s since the start", s.Iteration, total, loss,
			validation, bitsPerByte(validation), speed, time.Since(began).Seconds())
		t.recent = nil
	}
}

// bitsPerByte is a loss in nats a token, as models with other tokens can be compared by.
func bitsPerByte(loss float64) float64 { return loss / math.Ln2 / tokenBytes }

// readSteps is a step file from a place on; a repeated iteration counts as it was last.
func readSteps(path string, from int64) ([]report.Entry, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, fault.With(fault.IO, err)
	}
	defer file.Close()
	return report.ReadJSONL(io.NewSectionReader(file, from, math.MaxInt64-from))
}
