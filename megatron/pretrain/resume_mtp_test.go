package pretrain

import (
	"path/filepath"
	"testing"
)

// Claim: a run with multi-token prediction that stopped continues bit for bit in its layout,
// and in every other, also out of Megatron's formats, with the same losses of every depth and
// gradient norms but for the order of sums.
func TestMTPResumesInAnyLayout(t *testing.T) {
	const ahead = "--position-embedding-type rope --mtp-num-layers 2 --mtp-loss-scaling-factor 0.3 --mtp-detach-heads "
	const pp2 = "--world-size 4 --pipeline-model-parallel-size 2 --expert-model-parallel-size 2 --use-distributed-optimizer "
	dir := t.TempDir()
	base := tiny + someData + experts + ahead + "--save-interval 3 "
	full := numbers(must(t, dir, base+pp2+"--save DIR/whole").out)
	for _, format := range []string{"native", "torch", "torch_dist"} {
		from := "--load DIR/" + format + " "
		must(t, dir, base+pp2+"--exit-interval 3 --save DIR/"+format+" --ckpt-format "+format)
		for name, layout := range map[string]string{
			"same": pp2, "one rank": "", "zero3": "--world-size 2 --use-megatron-fsdp", "cp": "--world-size 2 --context-parallel-size 2",
			"tp": "--world-size 2 --tensor-model-parallel-size 2 --sequence-parallel --expert-model-parallel-size 2 --expert-tensor-parallel-size 1",
		} {
			rest := numbers(must(t, dir, base+from+layout).out)
			nearly(t, format+" as "+name, rest, full[len(full)-len(rest):])
		}
	}
	must(t, dir, base+pp2+"--load DIR/native --save DIR/native --ckpt-format native")
	if got, want := weights(t, filepath.Join(dir, "native")), weights(t, filepath.Join(dir, "whole")); got != want {
		t.Errorf("in parts %s, at once %s", got, want)
	}
}
