package arguments

import (
	"strings"
	"testing"
)

// TestBigScienceTokenizer: the names of Megatron-DeepSpeed for a tokenizer of Hugging Face.
func TestBigScienceTokenizer(t *testing.T) {
	line := strings.Fields("--num-layers 1 --hidden-size 8 --num-attention-heads 1 --seq-length 8 --max-position-embeddings 8 --micro-batch-size 1 --train-iters 1 --lr 1 --mock-data " +
		"--tokenizer-type PretrainedFromHF --tokenizer-name-or-path some/folder --kill-switch-path stop.now")
	c, _, err := Parse(line)
	if err != nil || c.Tokenizer.Type != "HuggingFaceTokenizer" || c.Tokenizer.Model != "some/folder" || c.KillSwitch != "stop.now" {
		t.Errorf("%+v, %q, %v", c.Tokenizer, c.KillSwitch, err)
	}
}
