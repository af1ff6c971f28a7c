package preprocess

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test's own binary be the command that a test kills.
func TestMain(m *testing.M) {
	if os.Getenv("PREPROCESS_CHILD") != "" {
		if _, err := call(os.Args[1:]...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// lines makes n JSON lines with two keys.
func lines(n int) []byte {
	r := rand.New(rand.NewPCG(7, uint64(n)))
	var text bytes.Buffer
	for i := range n {
		words := strings.Repeat("some naïve words, ", r.IntN(60))
		line, _ := json.Marshal(map[string]string{"text": words + strconv.Itoa(i), "title": fmt.Sprint("title ", i)})
		text.Write(append(line, '\n'))
	}
	return text.Bytes()
}

// killed starts a run and kills it after d; true when it had ended by itself.
func killed(t *testing.T, d time.Duration, words ...string) bool {
	c := exec.Command(os.Args[0], words...)
	c.Env = append(os.Environ(), "PREPROCESS_CHILD=1")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("%v: %v", words, err)
		}
		return true
	case <-time.After(d):
		_ = c.Process.Kill()
		<-ended
		return false
	}
}

// Claim: a run that is killed (SIGKILL) at any moment, also while it resumes, and
// then resumed gives the same bytes, and nothing stands under the final names
// before. PREPROCESS_KILLS sets the number of runs.
func TestKillAndResume(t *testing.T) {
	rounds := 4
	if n, err := strconv.Atoi(os.Getenv("PREPROCESS_KILLS")); err == nil {
		rounds = n
	} else if testing.Short() {
		rounds = 2
	}
	t.Chdir(t.TempDir())
	for i, part := range [][]byte{lines(3000), lines(2500)} {
		if err := os.WriteFile(fmt.Sprintf("in%d.jsonl", i), part, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	kills := 0
	for _, more := range [][]string{nil, {"--partitions", "3"}} {
		words := append([]string{"preprocess_data", "--input", "in0.jsonl", "in1.jsonl", "--json-keys", "text", "title", "--workers", "2",
			"--tokenizer-type", "GPT2BPETokenizer", "--append-eod", "--resume-interval", "1ms"}, more...)
		if err := os.Mkdir("want"+strings.Join(more, ""), 0o755); err != nil {
			t.Fatal(err)
		}
		want := "want" + strings.Join(more, "")
		start := time.Now()
		if !killed(t, time.Hour, append(words, "--output-prefix", want+"/x")...) {
			t.Fatal("the plain run was killed")
		}
		takes := time.Since(start)
		for round := range (rounds + 1) / 2 {
			out := fmt.Sprint("out", strings.Join(more, ""), round)
			if err := os.Mkdir(out, 0o755); err != nil {
				t.Fatal(err)
			}
			run := append(words, "--output-prefix", out+"/x")
			limit := 8 // kills of one run; then it may end
			for done := killed(t, time.Duration(r.Int64N(int64(takes))), run...); !done; {
				kills++
				wait := time.Duration(r.Int64N(2 * int64(takes)))
				if limit--; limit == 0 {
					wait = time.Hour
				}
				done = killed(t, wait, append(run, "--resume")...)
			}
			same(t, out, want)
		}
	}
	t.Logf("%d kills", kills)
}

// same compares the files of two folders.
func same(t *testing.T, got, want string) {
	t.Helper()
	files, err := os.ReadDir(want)
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, f := range files {
		a, err := os.ReadFile(filepath.Join(want, f.Name()))
		b, err2 := os.ReadFile(filepath.Join(got, f.Name()))
		if err != nil || err2 != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: %d bytes, want %d (%v, %v)", filepath.Join(got, f.Name()), len(b), len(a), err, err2)
		}
	}
	if left, _ := os.ReadDir(got); len(left) != len(files) {
		t.Errorf("%s holds %v, want %v", got, left, files)
	}
}

// Claim: --resume refuses inputs or flags that are not those of the killed run.
func TestResumeRefusesOthers(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("in.jsonl", lines(100), 0o644); err != nil {
		t.Fatal(err)
	}
	words := []string{"preprocess_data", "--input", "in.jsonl", "--output-prefix", "x", "--tokenizer-type", "GPT2BPETokenizer", "--resume"}
	stale := journal{Fingerprint: "of another run"}
	text, err := json.Marshal(stale)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(".x_document.resume", text, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := call(words...); err == nil || !strings.Contains(err.Error(), "other flags") {
		t.Errorf("%v", err)
	}
	if _, err := call(words[:len(words)-1]...); err != nil {
		t.Errorf("without --resume: %v", err)
	}
}

// Claim (CWE-59): a symbolic link under the name of an unfinished file is refused by name, and the
// file that it points to keeps its content.
func TestPlantedLinkIsNotFollowed(t *testing.T) {
	for _, name := range []string{".out_text_document.bin.partial", ".out_text_document.idx.partial", ".out_text_document.json.partial"} {
		dir := t.TempDir()
		input, target := filepath.Join(dir, "in.jsonl"), filepath.Join(dir, "target")
		for path, text := range map[string]string{input: "{\"text\": \"1 2 3\"}\n", target: "kept"} {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		_, err := call("preprocess_data", "--input", input, "--output-prefix", filepath.Join(dir, "out"), "--tokenizer-type", "NullTokenizer", "--vocab-size", "10")
		if text, _ := os.ReadFile(target); string(text) != "kept" {
			t.Errorf("%s: the target now holds %q", name, text)
		}
		if err == nil || !strings.Contains(err.Error(), filepath.Join(dir, name)+" is a symbolic link; remove it") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
