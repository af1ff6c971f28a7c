package preprocess

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"monotron/dataset"
)

// shardInputs writes two plain files, one without an end of its last line, and a packed one between them.
func shardInputs(t *testing.T, dir string) []string {
	t.Helper()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write(lines(300)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"a.jsonl": append([]byte("\ufeff"), lines(501)...), "b.jsonl.gz": packed.Bytes(), "c.jsonl": bytes.TrimSuffix(lines(200), []byte("\n"))}
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl.gz"), filepath.Join(dir, "c.jsonl")}
}

// Claim (docs/data.md): the pairs of all shards, joined, are byte for byte that of one run, for every number of
// shards, also where a shard is killed and resumed.
func TestShardsMakeTheSamePair(t *testing.T) {
	dir := t.TempDir()
	inputs := shardInputs(t, dir)
	words := []string{"preprocess_data", "--input", inputs[0], "--input", inputs[1], "--input", inputs[2], "--tokenizer-type", "GPT2BPETokenizer", "--append-eod", "--workers", "2"}
	if _, err := call(append(words, "--output-prefix", filepath.Join(dir, "one"))...); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2, 3, 7, 13} {
		out := filepath.Join(dir, fmt.Sprint("of", n))
		if err := os.Mkdir(out, 0o700); err != nil {
			t.Fatal(err)
		}
		var prefixes []string
		for i := 1; i <= n; i++ {
			shard := append(words, "--output-prefix", filepath.Join(out, "p"), "--shard", fmt.Sprintf("%d/%d", i, n))
			if i == 2 {
				killed(t, 30*time.Millisecond, append(shard, "--resume-interval", "0s")...)
				shard = append(shard, "--resume")
			}
			if _, err := call(shard...); err != nil {
				if strings.Contains(err.Error(), "no line begins in this shard") {
					continue // a packed file is all in one shard
				}
				t.Fatal(n, i, err)
			}
			prefixes = append(prefixes, filepath.Join(out, fmt.Sprintf("p_%0*dof%d_text_document", len(fmt.Sprint(n)), i, n)))
		}
		joined := filepath.Join(dir, fmt.Sprint("joined", n))
		if err := dataset.Merge(dataset.BuilderConfig{Prefix: joined}, prefixes); err != nil {
			t.Fatal(err)
		}
		side, _, err := dataset.JoinedSidecar(prefixes)
		if err == nil {
			err = side.Write(joined)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, suffix := range []string{".bin", ".idx", ".json"} {
			a, err := os.ReadFile(filepath.Join(dir, "one_text_document"+suffix))
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(joined + suffix)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a, b) {
				t.Errorf("%d shards: %s has %d bytes that differ from the %d of one run", n, suffix, len(b), len(a))
			}
		}
	}
}

// Claim: a line that cannot be read is named by the byte where the shard begins; wrong shards are refused.
func TestShardErrors(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "x.jsonl")
	if err := os.WriteFile(file, append(lines(100), "{]\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(words ...string) error {
		_, err := call(append([]string{"preprocess_data", "--output-prefix", filepath.Join(dir, "p"), "--tokenizer-type", "GPT2BPETokenizer"}, words...)...)
		return err
	}
	if err := run("--input", file, "--shard", "2/2"); err == nil || !strings.Contains(err.Error(), "x.jsonl from byte ") {
		t.Error(err)
	}
	for _, text := range []string{"0/2", "3/2", "1", "a/b", "1/2000000", "-1/2", "1/2/3"} {
		if err := run("--input", file, "--shard", text); err == nil || !strings.Contains(err.Error(), "is not of the form I/N") {
			t.Errorf("%s: %v", text, err)
		}
	}
	if err := run("--input", file, "--shard", "7/500000"); err == nil || !strings.Contains(err.Error(), "no line begins") {
		t.Error(err)
	}
	if err := run("--input", "-", "--shard", "1/2"); err == nil || !strings.Contains(err.Error(), "standard input") {
		t.Error(err)
	}
	if err := run("--input", dir, "--input-format", "text", "--shard", "1/2"); err == nil || !strings.Contains(err.Error(), "--shard needs JSON lines") {
		t.Error(err)
	}
}
