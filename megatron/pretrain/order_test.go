package pretrain

import (
	"math"
	"strconv"
	"strings"
	"testing"
)

// Claim (docs/data.md): a run with --dataloader-type cyclic that is resumed under
// another layout, twice and by way of Megatron's format, reads the samples that it
// would have read. Layouts differ in rounding alone, here in the last digits of
// the printed loss; another order differs in the third.
func TestCyclicOrderUnderOtherLayouts(t *testing.T) {
	for _, flags := range []string{"", "--no-data-sharding"} {
		dir := t.TempDir()
		base := strings.ReplaceAll(tiny, "--micro-batch-size 2", "") + someData + "--dataloader-type cyclic --save-interval 2 " + flags + " "
		want := lossesOf(t, must(t, dir, base+"--world-size 2 --micro-batch-size 1 --save DIR/whole").out)
		got := lossesOf(t, must(t, dir, base+"--world-size 2 --micro-batch-size 1 --save DIR/a --exit-interval 2").out)
		got = append(got, lossesOf(t, must(t, dir, base+"--micro-batch-size 2 --load DIR/a --save DIR/b --ckpt-format torch --exit-interval 4").out)...)
		got = append(got, lossesOf(t, must(t, dir, base+"--micro-batch-size 4 --load DIR/b").out)...)
		if len(got) != 6 || len(want) != 6 {
			t.Fatalf("%d and %d losses", len(got), len(want))
		}
		for i := range got {
			if math.Abs(got[i]-want[i]) > 1e-5*want[i] {
				t.Errorf("%s: iteration %d: loss %g, without a change of layout %g", flags, i+1, got[i], want[i])
			}
		}
	}
}

// lossesOf are those of the training iterations, as printed.
func lossesOf(t *testing.T, out string) (list []float64) {
	t.Helper()
	for line := range strings.Lines(out) {
		_, rest, ok := strings.Cut(line, "| lm loss: ")
		if !ok {
			continue
		}
		text, _, _ := strings.Cut(rest, " ")
		loss, err := strconv.ParseFloat(text, 64)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, loss)
	}
	return list
}
