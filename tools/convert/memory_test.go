package convert

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/spec"
)

// childArgs names the variable that makes TestChild, in a process of its own, one
// conversion; its peak of memory is then that conversion's.
const childArgs = "MONOTRON_CONVERT_ARGS"

func TestChild(t *testing.T) {
	args := os.Getenv(childArgs)
	if args == "" {
		t.Skip("only as a child of other tests")
	}
	limited := fileLimit(t)
	_, notes, err := call(strings.Split(args, "\n")...)
	if limited {
		fmt.Printf("code %d: %v\n", exitcode.CodeOf(err), err)
		return
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, notes)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%s", status) // whose rusage counts what the parent had when it forked
}

var peakLine = regexp.MustCompile(`VmHWM:\s*(\d+) kB`)

// peakOf is the largest resident memory, in bytes, of a process that converts.
func peakOf(t *testing.T, args ...string) int64 {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestChild$")
	c.Env = append(os.Environ(), childArgs+"="+strings.Join(args, "\n"))
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", args, err, out)
	}
	peak := peakLine.FindSubmatch(out)
	if peak == nil {
		t.Skip("this system does not tell a process's peak")
	}
	kb, err := strconv.ParseInt(string(peak[1]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kb * 1024
}

// Claim (docs/checkpoints.md): a conversion's memory is at most 1.2 times the largest
// tensor and 200 MB, whatever the state's size, from every format to every other.
// The state is larger than that: 268 MB with tensors of 4 MB; with MONOTRON_LARGE=1
// it is 1.5 GB, GPT-2 124M with moments.
func TestMemory(t *testing.T) {
	large, dir, m := os.Getenv("MONOTRON_LARGE") != "", t.TempDir(), small(t)
	switch {
	case large:
		var err error
		if m, err = spec.Preset("gpt2-124m"); err != nil {
			t.Fatal(err)
		}
	case testing.Short():
		t.Skip("writes 2 GB")
	}
	m.PaddedVocabSize = m.VocabSize
	largest, total := writeState(t, filepath.Join(dir, "native"), m)
	bound := largest*12/10 + 200e6
	fmt.Printf("%d MB of state, the largest tensor %d MB; at most %d MB for\n", total/1e6, largest/1e6, bound/1e6)
	from := []string{"native"}
	if large {
		from = []string{"native", "torch", "torch_dist", "hf", "nanogpt", "llmc", "distributed"}
	}
	for _, a := range from {
		for _, to := range []string{"torch", "torch_dist", "hf", "nanogpt", "llmc", "native", "distributed"} {
			if a == to {
				continue
			}
			out := filepath.Join(dir, to)
			keep := a == "native" && len(from) > 1
			if !keep {
				out = filepath.Join(dir, "out")
			}
			args := []string{"--input", filepath.Join(dir, a), "--output", out, "--to", to}
			if to == "distributed" {
				args = append(args[:len(args)-1], "torch", "--use-distributed-optimizer")
			}
			if strings.HasPrefix(to, "torch") || to == "distributed" {
				args = append(args, "--tensor-model-parallel-size", "2")
			}
			peak := peakOf(t, args...)
			fmt.Printf("  %4d MB  %s to %s\n", peak/1e6, a, to)
			if peak > bound {
				t.Errorf("%s to %s: %d MB, at most %d", a, to, peak/1e6, bound/1e6)
			}
			if keep {
				continue
			}
			if err := os.RemoveAll(out); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// small is a GPT-2 of 22 million parameters.
func small(t *testing.T) spec.Model {
	t.Helper()
	m, err := spec.Preset("gpt2-124m")
	if err != nil {
		t.Fatal(err)
	}
	m.NumLayers, m.HiddenSize, m.FFNHiddenSize, m.NumAttentionHeads, m.NumQueryGroups, m.KVChannels = 7, 512, 2048, 8, 8, 64
	m.VocabSize, m.MaxPositions = 1000, 64
	return m
}

// writeState writes a native checkpoint of m with moments; largest is that of its tensors.
func writeState(t *testing.T, path string, m spec.Model) (largest, total int64) {
	t.Helper()
	d := ref.Open()
	defer d.Arena.Close()
	list := stored(d, &m, 0, 1, 0, 1, true)
	for _, x := range list {
		largest, total = max(largest, x.Tensor.Bytes()), total+x.Tensor.Bytes()
	}
	config := fmt.Sprintf(`{"Model":%s,"Precision":"f32","SeqLength":%d}`, marshal(t, m), m.MaxPositions)
	state := native.State{Iteration: 1, Config: []byte(config), Extra: map[string]json.RawMessage{checkpoint.ExtraAdamSteps: json.RawMessage("1")}}
	if _, err := native.Save(context.Background(), path, state, list, d, native.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	return largest, total
}
