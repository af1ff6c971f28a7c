package pretrain

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// delayed asks for scales by earlier steps, with bits that no layout changes.
const delayed = "--fp8-format hybrid --fp8-amax-history-len 3 --fp8-amax-compute-algo max --layout-invariant --global-batch-size 4 --micro-batch-size 1 "

// Claim (docs/fp8.md): scales and histories, also of experts, continue bit for bit in another layout, and evaluations do not change them.
func TestScalesContinueInAnotherLayout(t *testing.T) {
	// steps are the lines of training: more evaluations see other samples.
	steps := func(out string) []string {
		return slices.DeleteFunc(numbers(out), func(line string) bool { return strings.Contains(line, "validation") })
	}
	for name, c := range map[string]struct{ flags, layout string }{
		"dense":   {"", "--tensor-model-parallel-size 2 --sequence-parallel "},
		"experts": {"--num-experts 4 --moe-router-topk 2 --disable-bias-linear ", "--expert-model-parallel-size 2 --tensor-model-parallel-size 2 --sequence-parallel "},
	} {
		dir := t.TempDir()
		base := tiny + someData + delayed + c.flags
		full := steps(must(t, dir, base+"--save DIR/one --save-interval 3").out)
		first := must(t, dir, base+c.layout+"--save DIR/parts --save-interval 3 --exit-interval 3 --world-size 4 --eval-interval 2 --eval-iters 1 --split 8,1,1").out
		then := must(t, dir, base+"--save DIR/parts --load DIR/parts --world-size 4 --pipeline-model-parallel-size 2 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1").out
		if got := append(steps(first), steps(then)...); len(full) == 0 || !slices.Equal(got, full) {
			t.Errorf("%s: losses %q, undisturbed %q", name, got, full)
		}
		if a, b := weights(t, filepath.Join(dir, "one")), weights(t, filepath.Join(dir, "parts")); a != b {
			t.Errorf("%s: tensors %s, undisturbed %s", name, b, a)
		}
	}
}

// Claim (docs/fp8.md): a checkpoint of another recipe has no scales, which is noted; one with histories of another length is refused.
func TestScalesThatACheckpointLacks(t *testing.T) {
	dir := t.TempDir()
	base := tiny + someData + "--save-interval 2 "
	must(t, dir, base+"--exit-interval 2 --save DIR/tensorwise --fp8-format hybrid --fp8-recipe tensorwise")
	must(t, dir, base+"--exit-interval 2 --save DIR/delayed --fp8-format hybrid --fp8-amax-history-len 3")
	for _, more := range []string{"", "--no-load-optim ", "--finetune "} {
		r := must(t, dir, base+more+"--load DIR/tensorwise --fp8-format hybrid")
		if !strings.Contains(r.notes, "the checkpoint has no scales of --fp8-recipe delayed") {
			t.Errorf("%q: the notes do not say that scales are missing:\n%s", more, r.notes)
		}
		if r = must(t, dir, base+more+"--load DIR/delayed --fp8-format hybrid --fp8-amax-history-len 3"); strings.Contains(r.notes, "no scales") {
			t.Errorf("%q: the notes say that scales are missing:\n%s", more, r.notes)
		}
		r = call(t, dir, base+more+"--load DIR/delayed --fp8-format hybrid --fp8-amax-history-len 4")
		if r.err == nil || r.code() != exitcode.Usage || !strings.Contains(r.err.Error(), "--fp8-amax-history-len must be 3") {
			t.Errorf("%q: a history of another length: %v", more, r.err)
		}
	}
	// Without the recipe the scales are not used.
	must(t, dir, base+"--load DIR/delayed")
}
