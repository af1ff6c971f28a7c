package datacase

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"monotron/internal/golden"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// cases is the golden cases.json: the shared one where this machine has it, else
// the subset in testdata.
func cases(t *testing.T) (path string, least int) {
	if s := golden.Shared(); s != "" {
		return filepath.Join(s, "golden/data/cases.json"), 68
	}
	return "testdata/cases.json", 35
}

// Claim: files, index arrays, cache files, samples, blends and sampler orders
// equal those that Megatron-LM made (golden data cases, every array by hash).
func TestGoldenCases(t *testing.T) {
	path, least := cases(t)
	var out strings.Builder
	passed, failed, err := Run(path, "", &out)
	if err != nil {
		t.Fatal(err)
	}
	if failed > 0 || passed < least {
		t.Errorf("%d passed, %d failed of %s\n%s", passed, failed, path, out.String())
	}
}

// Claim: every tokenizer option of a case reaches the tokenizer, and the names of
// cache files with it. The hashes are Python's md5 of the descriptions that
// Megatron-LM wrote for this case, with eod_id and pad_id set.
func TestTokenizerOptions(t *testing.T) {
	for _, c := range []struct {
		options            map[string]any
		train, valid, test string
	}{
		{map[string]any{"null_tokenizer_eod_id": 3, "null_tokenizer_pad_id": 7},
			"70df113135be6ae6f3505268c75c1327", "3a4102fb9c73502a45389c80047de90b", "4a99793f550d1dba6c1b5ba4182dbc41"},
		{map[string]any{"null_tokenizer_pad_id": 7}, "221adf0f336e42747b6e6fcaf55112d1", "d5857a0ac1fa8a45c305bb13fe1a2453", "0532d7172f76cb4b6f462f6f00d25c60"},
	} {
		file := withTokenizer(t, c.options, map[string]string{"train": c.train, "valid": c.valid, "test": c.test})
		var out strings.Builder
		if passed, failed, err := Run(file, "", &out); err != nil || passed != 1 || failed != 0 {
			t.Errorf("%v: %v\n%s", c.options, err, out.String())
		}
	}
}

// Claim: an option that is not known is an error, never ignored.
func TestUnknownTokenizerOption(t *testing.T) {
	file := withTokenizer(t, map[string]any{"chat_template": "x"}, nil)
	if _, _, err := Run(file, "", io.Discard); err == nil || !strings.Contains(err.Error(), "chat_template") {
		t.Errorf("error %v, want one that names chat_template", err)
	}
}

// withTokenizer writes the worked example with further tokenizer options and the
// hashes that follow, next to its data.
func withTokenizer(t *testing.T, options map[string]any, hashes map[string]string) (file string) {
	t.Helper()
	var all struct{ Dataset []map[string]any }
	data, err := os.ReadFile("testdata/cases.json")
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	at := slices.IndexFunc(all.Dataset, func(c map[string]any) bool { return c["id"] == "dataset/d02-worked-example" })
	if err != nil || at < 0 {
		t.Fatalf("no worked example: %v", err)
	}
	example := all.Dataset[at]
	delete(example, "detail")
	delete(example, "cache_files")
	maps.Copy(example["tokenizer"].(map[string]any), options)
	for split, hash := range hashes {
		example["splits"].(map[string]any)[split].(map[string]any)["hash"] = hash
	}
	dir := t.TempDir()
	text, err := json.Marshal(map[string]any{"dataset": []any{example}})
	if err == nil {
		err = os.CopyFS(filepath.Join(dir, "dataset"), os.DirFS("testdata/dataset"))
	}
	file = filepath.Join(dir, "cases.json")
	if err = errors.Join(err, os.WriteFile(file, text, 0o644)); err != nil {
		t.Fatal(err)
	}
	return file
}
