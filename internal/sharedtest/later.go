package sharedtest

import "testing"

// Models are the cases of golden/model whose config.json the program does not
// read yet, each with what it lacks. Who adds a family takes its cases out.
var Models = Later{
	"cohere":             "parallel blocks, neighbours paired in RoPE, a scale of the logits",
	"deepseek-v2-groups": "latent attention",
	"deepseek-v2-lite":   "latent attention",
	"deepseek-v3":        "latent attention",
	"falcon-7b":          "parallel blocks",
	"falcon-new":         "parallel blocks",
	"falcon-rw":          "its fused rows",
	"gemma2":             "norms after the blocks, capped scores, windows by layer",
	"gemma3":             "norms after the blocks, windows and bases by layer",
	"gpt-oss":            "sinks, windows by layer, clamped activation",
	"gpt-oss-dense":      "sinks, windows by layer",
	"gpt-oss-moe":        "sinks, windows by layer, clamped activation",
	"granite":            "scales of embeddings, residuals, scores and logits",
	"llama4-text-dense":  "chunks of attention, layers without RoPE",
	"opt":                "positions from row 2",
	"opt-post-norm":      "positions from row 2, norms after the blocks",
	"phi3-longrope":      "its fused rows, LongRoPE",
}

// Lines are the cases of golden/model whose command lines do not parse yet.
var Lines = Later{}

// Mixtures are the cases of golden/model with experts that do not run yet.
var Mixtures = Later{
	"gpt-oss-moe": "sinks, windows by layer, clamped activation",
}

// Later is cases by name, each with what the program lacks for it.
type Later map[string]string

// Failed tells whether a case ended in err, as one of the list must and no other
// may: a case that is ahead of the list is a failure too.
func (l Later) Failed(t testing.TB, name string, err error) bool {
	t.Helper()
	switch lacks, listed := l[name]; {
	case err != nil && !listed:
		t.Errorf("%s: %v", name, err)
	case err == nil && listed:
		t.Errorf("%s works now: take it (%q) out of the list in package sharedtest", name, lacks)
	}
	return err != nil
}

// Seen fails on a case of the list that is none of those found.
func (l Later) Seen(t testing.TB, found map[string]bool) {
	t.Helper()
	for name := range l {
		if !found[name] {
			t.Errorf("the list in package sharedtest names %s, which is no case", name)
		}
	}
}
