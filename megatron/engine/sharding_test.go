package engine

import (
	"fmt"
	"math"
	"testing"

	"monotron/megatron/config"
	"monotron/megatron/model"
	"monotron/megatron/optimizer"
)

// Claim: no sharding of the optimizer, alone or under tensor and pipeline
// parallelism, overlapping or not, changes the losses of training beyond rounding;
// nor does recomputation, which uses sharded parameters twice.
func TestShardingsTrainAlike(t *testing.T) {
	want := runLayout(t, layoutConfig(config.Layout{}), 3)
	layouts := []config.Layout{{DP: 2}, {DP: 4}, {DP: 4, OptimizerInstances: 2}, {TP: 2, DP: 2, SequenceParallel: true}, {PP: 2, DP: 2}, {PP: 2, VP: 2, DP: 2}}
	for _, l := range layouts {
		for _, s := range optimizer.Strategies() {
			for _, overlap := range []bool{false, true} {
				l.Sharding, l.OverlapGradReduce, l.OverlapParamGather, l.BucketSize = string(s), overlap, overlap, 2000
				t.Run(fmt.Sprintf("%+v x%d %s overlap %v", l.Sizes(), l.OptimizerInstances, s, overlap), func(t *testing.T) {
					c := layoutConfig(l)
					if overlap {
						c.Recompute = model.Recompute{Granularity: "full", Method: "uniform", NumLayers: 1}
					}
					got := runLayout(t, c, 3)
					for i := range want {
						if math.Abs(got[i]-want[i]) > 1e-5*want[i] {
							t.Errorf("step %d: loss %.7f, on one rank %.7f", i, got[i], want[i])
						}
					}
				})
			}
		}
	}
}
