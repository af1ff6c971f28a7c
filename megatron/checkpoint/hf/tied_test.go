package hf

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Claim: of a model whose embedding and output layer are one, a folder may hold that tensor under either name, as
// transformers reads it.
func TestTiedUnderTheOtherName(t *testing.T) {
	m := shape(Qwen2)
	dir := filepath.Join(t.TempDir(), "out")
	mp, err := NewMapping(m, Qwen2)
	if err != nil {
		t.Fatal(err)
	}
	get := func(global string) ([]float32, error) {
		n := 1
		for _, d := range mp.GlobalShape(global) {
			n *= int(d)
		}
		values := make([]float32, n+(m.PaddedVocabSize-m.VocabSize)*m.HiddenSize) // an embedding has padded rows
		for i := range values {
			values[i] = float32(i)
		}
		if strings.HasSuffix(global, "embeddings.weight") {
			return values, nil
		}
		return values[:n], nil
	}
	if err := Export(dir, m, get, ExportOptions{MaxPositions: 99}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.safetensors")
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read := func() []byte {
		f, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		row := make([]byte, 64)
		if err := f.ReadAt("model.embed_tokens.weight", row, 0); err != nil {
			t.Fatal(err)
		}
		return row
	}
	want := read()
	// The same file with the other name, and blanks in place of the letters that are fewer.
	const name, other = `"model.embed_tokens.weight"`, `"lm_head.weight"`
	changed := bytes.Replace(data, []byte(name), append([]byte(other), bytes.Repeat([]byte(" "), len(name)-len(other))...), 1)
	if bytes.Equal(changed, data) {
		t.Fatal("the name is not in the file")
	}
	if err := os.WriteFile(path, changed, 0o644); err != nil {
		t.Fatal(err)
	}
	if got := read(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
