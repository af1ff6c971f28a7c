package convert

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
)

// limitVariable holds how long a file TestChild may write: longer ones fail as on
// a full disk.
const limitVariable = "MONOTRON_CONVERT_LIMIT"

// fileLimit sets the limit of limitVariable for this process, where there is one.
func fileLimit(t *testing.T) (limited bool) {
	text := os.Getenv(limitVariable)
	if text == "" {
		return false
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err == nil {
		signal.Ignore(syscall.SIGXFSZ)
		err = unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: n})
	}
	if err != nil {
		t.Fatal(err)
	}
	return true
}

// writers are the ways to write, each with its flags.
var writers = map[string][]string{
	"native":      {"--to", "native"},
	"torch":       {"--to", "megatron-torch", "--tensor-model-parallel-size", "2"},
	"distributed": {"--to", "megatron-torch", "--use-distributed-optimizer"},
	"torch_dist":  {"--to", "megatron-torch_dist", "--pipeline-model-parallel-size", "2"},
	"hf":          {"--to", "hf", "--max-shard-size", "1MB"},
	"nanogpt":     {"--to", "nanogpt"},
	"llmc":        {"--to", "llmc"},
	"gguf":        {"--to", "gguf"},
}

func child(more []string, args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], "-test.run=^TestChild$")
	c.Env = append(append(os.Environ(), childArgs+"="+strings.Join(args, "\n")), more...)
	return c
}

// startState is a native checkpoint of 12 MB with moments.
func startState(t *testing.T, dir string) string {
	t.Helper()
	m := small(t)
	m.NumLayers, m.HiddenSize, m.FFNHiddenSize, m.KVChannels = 4, 128, 512, 16
	m.PaddedVocabSize = m.VocabSize
	path := filepath.Join(dir, "start")
	writeState(t, path, m)
	return path
}

// Claim: a file that the disk has no space for, at its start or behind it, is one
// I/O error; nothing is left of the output.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	start := startState(t, dir)
	for name, flags := range writers {
		for _, limit := range []string{"100", "200000"} {
			out := filepath.Join(dir, "full", name)
			c := child([]string{limitVariable + "=" + limit}, append([]string{"--input", start, "--output", out}, flags...)...)
			text, err := c.CombinedOutput()
			if err != nil || !strings.Contains(string(text), fmt.Sprintf("code %d", exitcode.IO)) || !strings.Contains(string(text), "file too large") {
				t.Errorf("%s with %s bytes: %v\n%s", name, limit, err, text)
			}
			if left, err := os.ReadDir(filepath.Dir(out)); err == nil && len(left) > 0 {
				t.Errorf("%s with %s bytes: %v is left", name, limit, left)
			}
		}
	}
}

// Claim: killed at any moment, a conversion leaves an output that is complete under
// its name, or none.
func TestConversionKilled(t *testing.T) {
	dir := t.TempDir()
	start := startState(t, dir)
	r := rand.New(rand.NewPCG(3, 4))
	for name, flags := range writers {
		args := func(out string) []string { return append([]string{"--input", start, "--output", out}, flags...) }
		began := time.Now()
		if text, err := child(nil, args(filepath.Join(dir, "whole-"+name))...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		took := time.Since(began)
		for k := range 4 {
			out := filepath.Join(dir, fmt.Sprintf("killed-%s-%d", name, k))
			c := child(nil, args(out)...)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration((0.2 + 0.8*r.Float64()) * float64(took)))
			_ = c.Process.Kill() // it may be through
			_ = c.Wait()
			src, err := all.Open(out, checkpoint.OpenOptions{Step: -1})
			if exitcode.CodeOf(err) == exitcode.NoInput {
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if err := checkpoint.Check(src); err != nil || !sameWeights(t, start, out) {
				t.Errorf("%s: what has the name is not whole: %v", name, err)
			}
			src.Close()
		}
	}
}
