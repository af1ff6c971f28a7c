package arguments

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// known are the flags of one model, as training gives them.
func known(name string) (map[string][]string, error) {
	if name != "small" {
		return nil, errors.New("no model preset")
	}
	return map[string][]string{"num-layers": {"3"}, "hidden-size": {"24"}, "num-attention-heads": {"2"}, "seq-length": {"16"}, "max-position-embeddings": {"16"}, "hidden-dropout": {"0"}, "attention-dropout": {"0.2"}}, nil
}

const rest = " --micro-batch-size 1 --train-iters 2 --lr 1e-3 --mock-data --tokenizer-type NullTokenizer --vocab-size 10"

// TestModelPreset: the shape is the known one's, flags take precedence, and an unknown name is the only problem.
func TestModelPreset(t *testing.T) {
	o := Options{PresetValues: known}
	c, report, err := ParseWith(o, strings.Fields("--model small --num-layers 5"+rest))
	if err != nil || c.Model.NumLayers != 5 || c.Model.HiddenSize != 24 || c.SeqLength != 16 || c.Model.HiddenDropout != 0 || c.Model.AttentionDropout != 0.2 {
		t.Errorf("%+v, %v", c.Model, err)
	}
	if got := report.Source("hidden-size"); got != "--model" {
		t.Errorf("the hidden size is from %q", got)
	}
	if _, _, err := ParseWith(o, strings.Fields("--model big"+rest)); err == nil || strings.Contains(err.Error(), "missing") || !strings.Contains(err.Error(), "--model: no model preset") {
		t.Errorf("an unknown name: %v", err)
	}
}

// TestLoadWithoutAShape: where no flag says a shape, it is the checkpoint's with its dropouts, and a note says so; where one does, a
// note says which default replaces a Hugging Face folder's dropout.
func TestLoadWithoutAShape(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "config.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := Options{CheckpointValues: func(string, int64) (map[string][]string, error) { return known("small") }}
	c, report, err := ParseWith(o, strings.Fields("--load "+folder+rest))
	if err != nil || c.Model.NumLayers != 3 || c.SeqLength != 16 || c.Model.HiddenDropout != 0 {
		t.Errorf("%+v, %v", c.Model, err)
	}
	if notes := strings.Join(report.Notices, "\n"); !strings.Contains(notes, "so it is taken from the checkpoint to load (--num-layers 3 --hidden-size 24") {
		t.Errorf("notes: %s", notes)
	}
	c, report, err = ParseWith(o, strings.Fields("--load "+folder+rest+" --num-layers 3 --hidden-size 24 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 --attention-dropout 0"))
	if err != nil || c.Model.HiddenDropout != 0.1 {
		t.Errorf("%+v, %v", c.Model, err)
	}
	if notes := strings.Join(report.Notices, "\n"); !strings.Contains(notes, "--hidden-dropout is 0.1, the default of Megatron-LM, but the model in "+folder+" has 0") || strings.Contains(notes, "--attention-dropout is") {
		t.Errorf("notes: %s", notes)
	}
}
