package preprocess

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// Claim (docs/data.md): rows in Parquet, WebDataset's tar and MDS shards make the token files that the same rows make as
// JSON lines, from one run and from shards of it.
func TestRecordsMakeTheSamePair(t *testing.T) {
	dir, data := t.TempDir(), "../../dataset/records/testdata"
	raw, err := os.ReadFile(filepath.Join(data, "rows.json"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []json.RawMessage
	if err := json.Unmarshal(raw, &rows); err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	for _, row := range rows {
		if err := json.Compact(&lines, row); err != nil {
			t.Fatal(err)
		}
		lines.WriteByte('\n')
	}
	writeFile(t, filepath.Join(dir, "rows.jsonl"), lines.Bytes())
	// A folder of shards, as the streaming package leaves it, whose index.json is not data.
	shard, err := os.ReadFile(filepath.Join(data, "shard.mds"))
	if err != nil {
		t.Fatal(err)
	}
	mds := filepath.Join(dir, "mds")
	if err := os.Mkdir(mds, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(mds, "shard.00000.mds"), shard)
	writeFile(t, filepath.Join(mds, "index.json"), []byte(`{"version": 2, "shards": []}`))

	want := ""
	for i, c := range []struct{ input, key string }{{filepath.Join(dir, "rows.jsonl"), "text"}, {filepath.Join(data, "rows.parquet"), "text"}, {filepath.Join(data, "samples.tar"), "txt"},
		{filepath.Join(data, "samples.tar"), "text"}, {mds, "text"}} {
		prefix := filepath.Join(dir, fmt.Sprint("o", i))
		words := []string{"preprocess_data", "--input", c.input, "--json-keys", c.key, "--output-prefix", prefix, "--append-eod", "--tokenizer-type", "GPT2BPETokenizer"}
		mustCall(t, words...)
		got := hash(t, prefix+"_"+c.key+"_document.bin") + hash(t, prefix+"_"+c.key+"_document.idx")
		if want == "" {
			want = got
		}
		if got != want {
			t.Errorf("%s, key %s, makes another pair", c.input, c.key)
		}
		if i == 1 { // all of the file is in the part of its first byte
			mustCall(t, append(words, "--shard", "1/3")...)
			if part := hash(t, prefix+"_1of3_text_document.bin"); part != hash(t, prefix+"_text_document.bin") {
				t.Errorf("%s: its first shard has not all rows", c.input)
			}
		}
	}
}
