package diff

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/megatron/training"
	"monotron/mpu/topology"
)

// fingerprints writes a folder of two ranks and three iterations; change may alter each step.
func fingerprints(t *testing.T, change func(rank int, s *training.Fingerprints)) string {
	t.Helper()
	dir := t.TempDir()
	for rank := range 2 {
		var text []byte
		line := func(s training.Fingerprints) {
			one, err := json.Marshal(s)
			if err != nil {
				t.Fatal(err)
			}
			text = append(append(text, one...), '\n')
		}
		line(training.Fingerprints{Header: &training.Header{Rank: rank, Layout: topology.Sizes{TP: 1, CP: 1, DP: 1, PP: 2, EP: 1}}})
		for n := range int64(3) {
			s := training.Fingerprints{Iteration: n + 1, Prints: []training.Print{
				{Phase: training.PrintData, Micro: 0, Name: "tokens", Sum: "1"},
				{Phase: training.PrintForward, Micro: 0, Depth: 1 + rank, Name: "the output of layer", Sum: "2"},
				{Phase: training.PrintForward, Micro: 1, Depth: 1 + rank, Name: "the output of layer", Sum: "3"},
				{Phase: training.PrintGradient, Name: "decoder.layers.0.x", Sum: "4"},
				{Phase: training.PrintGradient, Name: "decoder.layers.1.x", Sum: "5"},
				{Phase: training.PrintWeight, Name: "model.decoder.layers.0.x", Sum: "6"},
			}}
			if change != nil {
				change(rank, &s)
			}
			line(s)
		}
		if err := os.WriteFile(training.PrintsOf(dir, rank), text, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Claim (docs/automation.md): diff names the first iteration, then the first in the order of the
// computation: data, forward by micro-batch and layer, gradients from the last layer on, weights.
func TestFirstDifference(t *testing.T) {
	before := fingerprints(t, nil)
	spoil := func(prints ...int) func(*training.Fingerprints) {
		return func(s *training.Fingerprints) {
			for _, i := range prints {
				s.Prints[i].Sum = "spoiled"
			}
		}
	}
	for name, c := range map[string]struct {
		iteration int64 // from here on
		rank      int
		change    func(*training.Fingerprints)
		want      string
	}{
		"equal":            {9, 0, nil, "3 iterations of 2 ranks are equal"},
		"forward":          {2, 1, spoil(2, 3, 4, 5), "iteration 2, rank 1, forward, micro-batch 1: the output of layer"},
		"gradients":        {3, 0, spoil(3, 4, 5), "iteration 3, rank 0, gradient: decoder.layers.1.x"},
		"weights":          {1, 1, spoil(5), "iteration 1, rank 1, weight: model.decoder.layers.0.x"},
		"data":             {2, 0, spoil(0, 1, 2), "iteration 2, rank 0, data, micro-batch 0: tokens"},
		"a step cut short": {3, 0, func(s *training.Fingerprints) { s.Prints = s.Prints[:3] }, "has no further fingerprints of this iteration"},
	} {
		after := fingerprints(t, func(rank int, s *training.Fingerprints) {
			if rank == c.rank && s.Iteration >= c.iteration {
				c.change(s)
			}
		})
		out, err := call(before, after)
		if code := exitcode.CodeOf(err); !strings.Contains(out, c.want) || (code == exitcode.Done) != (name == "equal") || code != exitcode.Done && code != exitcode.Differs {
			t.Errorf("%s: code %d, %s", name, code, out)
		}
		if text, _ := call(before, after, "--json"); !json.Valid([]byte(text)) {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// Claim: of an iteration that a resumed run computed again the later line counts; a line that a
// kill cut short is left out; damaged and foreign files are one error with file and line.
func TestFingerprintFiles(t *testing.T) {
	before, after := fingerprints(t, nil), fingerprints(t, nil)
	path := training.PrintsOf(after, 0)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	again := lines[0] + lines[1] + strings.ReplaceAll(lines[2], `"sum":"2"`, `"sum":"0"`) + lines[0] + lines[2] + lines[3] + lines[3][:20]
	for name, c := range map[string]struct {
		text string
		code exitcode.Code
		want string
	}{
		"again, and cut":  {again, exitcode.Done, ""},
		"not JSON":        {lines[0] + "{\n", exitcode.BadData, "line 2"},
		"no header":       {lines[1], exitcode.BadData, "the header of rank 0 is missing"},
		"nothing":         {"", exitcode.BadData, "the header of rank 0 is missing"},
		"another rank":    {strings.Replace(lines[0], `"rank":0`, `"rank":1`, 1) + lines[1], exitcode.BadData, "the header of rank 0 is missing"},
		"nothing alike":   {lines[0] + strings.Replace(lines[1], `"iteration":1`, `"iteration":50`, 1), exitcode.BadData, "no iteration in common"},
		"another layout":  {strings.Replace(lines[0], `"TP":1`, `"TP":2`, 1) + lines[1], exitcode.Usage, "compare runs of the same layout"},
		"a huge layout":   {strings.Replace(lines[0], `"TP":1`, `"TP":4611686018427387904`, 1) + lines[1], exitcode.BadData, ""},
		"negative layout": {strings.Replace(lines[0], `"TP":1`, `"TP":-1`, 1) + lines[1], exitcode.BadData, ""},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o666); err != nil {
			t.Fatal(err)
		}
		_, err := call(before, after)
		if exitcode.CodeOf(err) != c.code || err != nil && (!strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), filepath.Dir(path))) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Remove(training.PrintsOf(before, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := call(before, before); exitcode.CodeOf(err) != exitcode.NoInput {
		t.Errorf("a rank's file is missing: %v", err)
	}
}
