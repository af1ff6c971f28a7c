package optimizer

import (
	"fmt"
	"testing"

	"monotron/csrc/ref"
	"monotron/mpu"
	"monotron/mpu/comm/inproc"
)

func named(sizes map[string]int64, names ...string) (ps []*mpu.Param) {
	for _, n := range names {
		ps = append(ps, mpu.Whole(n, mpu.Init{}, sizes[n]))
	}
	return ps
}

// Claim (Megatron-LM, param_and_grad_buffer.py): reverse order, starts at multiples of 64, a bucket
// closed by the parameter that reaches the size, ends that ranks can share.
func TestBucketsInReverseOrder(t *testing.T) {
	ps := named(map[string]int64{"a": 10, "b": 100, "c": 64, "d": 30}, "a", "b", "c", "d")
	for _, c := range []struct {
		shards   int
		sharding Sharding
		want     string
	}{
		{1, Sharding{BucketSize: 90}, "{0 128} [d c] [0 64] {128 128} [b] [0] {256 64} [a] [0]"},
		{2, Sharding{BucketSize: 90}, "{0 128} [d c] [0 64] {128 128} [b] [0] {256 128} [a] [0]"},
		{4, Sharding{BucketSize: 90}, "{0 256} [d c] [0 64] {256 256} [b] [0] {512 256} [a] [0]"},
		{3, Sharding{}, "{0 384} [d c b a] [0 64 128 256]"},
		{1, Sharding{BucketCount: 2}, "{0 256} [d c b] [0 64 128] {256 64} [a] [0]"},
		{1, Sharding{OverlapGradReduce: true}, "{0 320} [d c b a] [0 64 128 256]"},
		{2, Sharding{PadForBandwidth: true}, "{0 65536} [d c b a] [0 64 128 256]"},
	} {
		text := ""
		for i, b := range layout(ps, c.shards, c.shards, c.sharding) {
			if i > 0 {
				text += " "
			}
			var names []string
			for _, p := range b.params {
				names = append(names, p.Name)
			}
			text += fmt.Sprint(b.stretch, names, b.at)
		}
		if text != c.want {
			t.Errorf("%d shards, %+v: %s, want %s", c.shards, c.sharding, text, c.want)
		}
	}
}

// Claim: Megatron's default size is max(40e6, 1e6 per rank) with overlapped
// reduction on the first stage, else one bucket.
func TestBucketRule(t *testing.T) {
	for _, c := range []struct {
		s     Sharding
		ranks int
		want  int64
	}{
		{Sharding{}, 8, 0}, {Sharding{OverlapGradReduce: true}, 8, 40_000_000}, {Sharding{OverlapGradReduce: true}, 64, 64_000_000},
		{Sharding{OverlapGradReduce: true, LaterStage: true}, 8, 0}, {Sharding{BucketSize: 5, BucketCount: 3}, 8, 5}, {Sharding{BucketCount: 3}, 8, 300},
	} {
		if got := c.s.limit(900, c.ranks); got != c.want {
			t.Errorf("%+v, %d ranks: %d, want %d", c.s, c.ranks, got, c.want)
		}
	}
}

// Claim: ZeRO-2 and 3 have a bucket for each part of the model that is used as
// one; a tied table that is summed with another stage's has one of its own once it
// is sharded.
func TestBucketsByUse(t *testing.T) {
	names := []string{"embedding.word_embeddings.weight", "embedding.position_embeddings.weight", "decoder.layers.0.a.weight", "decoder.layers.0.b.c.bias",
		"decoder.layers.10.a.weight", "decoder.final_layernorm.weight", "output_layer.weight"}
	sizes := map[string]int64{}
	for _, n := range names {
		sizes[n] = 3
	}
	ps := named(sizes, names...)
	for i, unit := range []string{"embedding", "embedding", "layer 0", "layer 0", "layer 10", "head", "head"} {
		ps[i].Unit = unit
	}
	ps[0].Role, ps[6].Role = mpu.Vocabulary, mpu.Vocabulary
	count := func(shards int, s Sharding) (counts []int) {
		for _, b := range layout(ps, shards, shards, s) {
			counts = append(counts, len(b.params))
		}
		return counts
	}
	if got := fmt.Sprint(count(2, Sharding{Strategy: OptimGrads, BucketSize: 1})); got != "[2 1 2 2]" {
		t.Errorf("by layer: %s", got)
	}
	both, err := inproc.NewWorld(2).Group(0, "embedding", []int{0, 1}, ref.Open())
	if err != nil {
		t.Fatal(err)
	}
	ps[0].SumOver = both
	if got := fmt.Sprint(count(2, Sharding{Strategy: Optim})); got != "[6 1]" {
		t.Errorf("tied: %s", got)
	}
	if got := fmt.Sprint(count(1, Sharding{})); got != "[7]" {
		t.Errorf("not sharded: %s", got)
	}
}
