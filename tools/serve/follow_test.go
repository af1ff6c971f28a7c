package serve

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monotron/internal/golden"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/native"
)

// saved is a source that says which iteration it is.
type saved struct {
	checkpoint.Source
	iteration int64
}

func (s saved) State() checkpoint.State { return checkpoint.State{Iteration: s.iteration} }

// saveIteration puts golden/serve's model into a save folder as an iteration of a run.
func saveIteration(t *testing.T, dir string, n int64) {
	t.Helper()
	src, err := all.OpenAs(checkpoint.HF, golden.Dir(t, "serve", "model"), checkpoint.OpenOptions{Step: -1})
	if err != nil {
		t.Error(err)
		return
	}
	defer src.Close()
	if _, err := native.Write(context.Background(), dir, saved{src, n}, checkpoint.WriteOptions{}); err != nil {
		t.Error(err)
	}
}

// Claim (docs/serve.md): --follow waits for a first iteration, answers with each new one and
// says so, and passes over what cannot be loaded with one note.
func TestFollow(t *testing.T) {
	golden.Dir(t, "serve", "model")
	dir, apart := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "run")
	time.AfterFunc(100*time.Millisecond, func() { saveIteration(t, dir, 10) })
	url, reported := startTelling(t, "--load", dir, "--follow")
	answers := func(want string) {
		t.Helper()
		_, body := request(t, "POST", url+"/v1/completions", `{"prompt": "O", "max_tokens": 2}`)
		var got struct {
			Fingerprint string `json:"system_fingerprint"`
		}
		if err := json.Unmarshal(body, &got); err != nil || got.Fingerprint != want {
			t.Errorf("%s, want %s", body, want)
		}
	}
	until := func(part string) {
		t.Helper()
		for {
			select {
			case line := <-reported:
				if strings.Contains(line, part) {
					return
				}
				t.Errorf("the server says %q before %q", line, part)
			case <-time.After(time.Minute):
				t.Fatalf("the server has not said %q", part)
			}
		}
	}
	answers("iter-10")
	saveIteration(t, dir, 20)
	until("iteration 20 is in use")
	answers("iter-20")
	saveIteration(t, apart, 30)
	torn := filepath.Join(apart, checkpoint.IterName(30))
	if err := os.Truncate(filepath.Join(torn, "rank_00000.safetensors"), 1000); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, ".tmp-"+checkpoint.IterName(30)+"-1-2"), 0o777); err != nil { // of a save under way
		t.Fatal(err)
	}
	if err := os.Rename(torn, filepath.Join(dir, checkpoint.IterName(30))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, checkpoint.TrackerName), []byte("30"), 0o666); err != nil {
		t.Fatal(err)
	}
	until("iteration 30 is skipped, iter-20 stays in use: ")
	answers("iter-20")
	saveIteration(t, dir, 40)
	until("iteration 40 is in use")
	answers("iter-40")
}

// Claim: what cannot be followed is refused.
func TestFollowRefuses(t *testing.T) {
	for line, want := range map[string]string{
		"--ckpt-step 3 --load x":                    "--follow cannot be combined with --ckpt-step 3; give one",
		"--load " + golden.Dir(t, "serve", "model"): "is one checkpoint (format hf); name the folder that a run saves its iterations to",
	} {
		_, w := io.Pipe()
		if err := call(context.Background(), discard{w}, append([]string{"--follow", "--port", "0"}, strings.Fields(line)...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// Claim: an address or a file of keys that is empty, as a script's variable that is
// not set leaves it, does not open the server to everybody.
func TestEmptyValues(t *testing.T) {
	for _, name := range []string{"--host", "--api-key-file"} {
		_, w := io.Pipe()
		err := call(context.Background(), discard{w}, "--load", "x", "--port", "0", name, "")
		if err == nil || !strings.Contains(err.Error(), name+" is empty") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
