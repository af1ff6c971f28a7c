package pretrain

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// Claim: a run that begins with a Hugging Face folder keeps the folder's ids of special tokens, also through a resume,
// if one of those that end a text is its tokenizer's; else the ids are the tokenizer's.
func TestSpecialTokensOfALoadedFolder(t *testing.T) {
	dir := t.TempDir()
	const short = "--eval-iters 0 --train-iters 2 --position-embedding-type learned_absolute "
	must(t, dir, tiny+someData+short+"--save DIR/first")
	folder := hfFolder(t, filepath.Join(dir, "first"))
	own := ends(t, folder)
	if list, several := own.([]any); own == nil || several {
		t.Fatalf("a run's own folder ends texts at %v", list)
	}
	for name, ids := range map[string]any{"kept": []any{own, 3.0}, "another tokenizer's": []any{3.0, 5.0}} {
		text, err := json.Marshal(map[string]any{"eos_token_id": ids})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "generation_config.json"), text, 0o644); err != nil {
			t.Fatal(err)
		}
		save := filepath.Join(dir, name[:4])
		must(t, dir, tiny+someData+short+"--load "+folder+" --save "+save)
		must(t, dir, tiny+someData+short+"--train-iters 3 --override-opt-param-scheduler --load "+save+" --save "+save)
		want := ids
		if name != "kept" {
			want = own
		}
		if got := ends(t, hfFolder(t, save)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: texts end at %v, want %v", name, got, want)
		}
	}
}

// ends is the eos_token_id of a folder's generation_config.json.
func ends(t *testing.T, folder string) any {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "generation_config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	return config["eos_token_id"]
}
