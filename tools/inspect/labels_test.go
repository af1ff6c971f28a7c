package inspect

import (
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
)

// Claim: --labels with a method of preference tuning prints the answers of a row, each as the
// method reads it: ORPO's first answer begins after "a", where the prompt's "a n" is "a name" with it.
func TestPreferenceLabels(t *testing.T) {
	rows, tokenizer := filepath.Join(golden.Dir(t, "dpo"), "text.jsonl"), filepath.Join(golden.Dir(t, "chat"), "tokenizer.json")
	flags := []string{"samples", "--labels", "--finetune-data", rows, "--tokenizer-type", "HuggingFaceTokenizer", "--tokenizer-model", tokenizer, "--first", "14", "--seq-length", "64", "--tuning"}
	for method, want := range map[string][]string{
		"orpo": {"line 15, chosen: ", "line 15, rejected: ", `-100             "am"`, `263             "es"`},
		"dpo":  {"line 15, chosen: ", "line 15, rejected: ", `262             "am"`, `263             "es"`},
		"kto":  {"line 15, good: "},
		"sft":  {},
	} {
		out, err := call(append(flags, method)...)
		if method == "sft" {
			if exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "text.jsonl:1: the row has chosen and rejected answers") {
				t.Errorf("sft: %v", err)
			}
			continue
		}
		for _, text := range want {
			if err != nil || !strings.Contains(out, text) {
				t.Errorf("%s: no %q in %s, %v", method, text, out, err)
			}
		}
	}
	if _, err := call(append(flags, "ppo")...); exitcode.CodeOf(err) != exitcode.Usage {
		t.Errorf("ppo: %v", err)
	}
}
