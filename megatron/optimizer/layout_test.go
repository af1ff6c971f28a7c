package optimizer

import (
	"fmt"
	"math"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/mpu"
	"monotron/mpu/comm/inproc"
)

func named(sizes map[string]int64, names ...string) (ps []*mpu.Param) {
	for _, n := range names {
		ps = append(ps, mpu.Uncut(n, mpu.Init{}, sizes[n]))
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

// Claim: a parameter whose length differs between tensor-parallel ranks moves no other one in its bucket, however
// the size of buckets is given: their partial gradients are summed in the parts that ranks hold.
func TestUnevenParametersMoveNoOthers(t *testing.T) {
	where := func(uneven int64, s Sharding) (text string) {
		ps := named(map[string]int64{"a": 300, "b": uneven, "c": 200, "d": 100}, "a", "b", "c", "d")
		ps[1].Uneven = true
		for _, b := range layout(ps, 2, 2, s) {
			for i, p := range b.params {
				if p != ps[1] {
					text += fmt.Sprint(p.Name, b.at[i], " of ", b.n, "; ")
				}
			}
		}
		return text
	}
	for _, s := range []Sharding{{}, {BucketSize: 250}, {BucketCount: 3}, {Strategy: OptimGradsParams}} {
		if last, others := where(60, s), where(2000, s); last != others || last == "" {
			t.Errorf("%+v: %q on one rank, %q on another", s, last, others)
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

// Claim: a bucket is updated by one call, and counted by one, whatever weight decay leaves
// alone; with --decoupled-lr the vocabulary by another. Each parameter has its own decay and
// rate, and the gaps between them stay empty.
func TestOneCallABucket(t *testing.T) {
	for _, apart := range []float64{0, 2} {
		d := ref.Open()
		var params []*mpu.Param
		for i, n := range []int64{70, 3, 5, 200, 7, 64, 9} {
			p := mpu.Uncut(fmt.Sprint("p", i), mpu.Init{Kind: mpu.InitConstant, Value: 1}, n)
			p.NoDecay = i == 1 || i == 2 || i == 4
			params = append(params, p)
		}
		params[0].Role = mpu.Vocabulary
		o := New(d, Config{Kind: Adam, DecoupledLR: apart, AdamBeta1: 0.9, AdamBeta2: 0.99, AdamEps: 1e-8}, params, device.BF16, Groups{}, Sharding{})
		if err := o.Initialize(1); err != nil {
			t.Fatal(err)
		}
		if err := o.ZeroGrad(); err != nil {
			t.Fatal(err)
		}
		for _, p := range params {
			d.Fill(p.Grad, 1)
		}
		calls := map[device.Op]int{}
		d.Observe = func(c device.Call) { calls[c.Op]++ }
		r, err := o.Step(StepArgs{LR: 1, WeightDecay: 0.25, DecoupledLR: apart, Factor: 1})
		if err != nil {
			t.Fatal(err)
		}
		d.Observe = nil
		want := 1
		if apart > 0 {
			want = 2
		}
		if calls[device.OpAdamW] != want || calls[device.OpGradStats] != 1 {
			t.Errorf("rate %g: %d updates, %d counts, want %d and 1", apart, calls[device.OpAdamW], calls[device.OpGradStats], want)
		}
		if want := math.Sqrt(70 + 3 + 5 + 200 + 7 + 64 + 9); math.Abs(r.GradNorm-want) > 1e-5 || r.Zeros != 0 {
			t.Errorf("norm %g, want %g; %d zeros between parameters", r.GradNorm, want, r.Zeros)
		}
		for i, p := range params {
			want := -0.25 // the first step of Adam takes its rate, 1, and decay
			switch {
			case i == 0 && apart > 0:
				want = 1 - 2*(1+0.25)
			case p.NoDecay:
				want = 0
			}
			for j, v := range device.ReadSlice[float32](d, p.Main) {
				if math.Abs(float64(v)-want) > 1e-6 {
					t.Fatalf("%s[%d] is %g, want %g", p.Name, j, v, want)
				}
			}
		}
		b := o.buckets[0]
		for i, p := range b.params { // what pads a parameter
			for _, v := range device.ReadSlice[float32](d, o.runs[0].main.Slice(0, b.at[i]+p.Len(), roundUp(p.Len(), alignment)-p.Len())) {
				if v != 0 {
					t.Fatalf("behind %s: %g", p.Name, v)
				}
			}
		}
		d.Close()
	}
}

// Claim: with muP at 4 times the base's width AdamW divides rate and epsilon of matrices by 4, and leaves
// tables of embeddings, norms and biases alone; SGD multiplies the rates of these by 4. Worked by hand: the
// first step of AdamW on a gradient g is lr·g/(g + eps).
func TestMuPRates(t *testing.T) {
	const g, eps = 0.5, 1.0
	adam := func(rate, eps float64) float64 { return 1 - rate*g/(g+eps) }
	for kind, want := range map[string][]float64{
		Adam: {adam(1, eps), adam(0.25, eps/4), adam(1, eps), adam(0.25, eps/4)},
		SGD:  {1 - 4*g, 1 - g, 1 - 4*g, 1 - g},
	} {
		d := ref.Open()
		one := mpu.Init{Kind: mpu.InitConstant, Value: 1}
		params := []*mpu.Param{mpu.Uncut("embedding.word_embeddings.weight", one, 4, 2), mpu.Uncut("decoder.layers.0.mlp.linear_fc1.weight", one, 3, 2),
			mpu.Uncut("decoder.layers.0.input_layernorm.weight", one, 5), mpu.Uncut("output_layer.weight", one, 4, 2)}
		params[0].Role, params[3].Role = mpu.Vocabulary, mpu.Vocabulary
		o := New(d, Config{Kind: kind, WidthMult: 4, AdamBeta1: 0.9, AdamBeta2: 0.99, AdamEps: eps}, params, device.F32, Groups{}, Sharding{})
		if err := o.Initialize(1); err != nil {
			t.Fatal(err)
		}
		if err := o.ZeroGrad(); err != nil {
			t.Fatal(err)
		}
		for _, p := range params {
			d.Fill(p.Grad, g)
		}
		if _, err := o.Step(StepArgs{LR: 1, Factor: 1}); err != nil {
			t.Fatal(err)
		}
		for i, p := range params {
			if got := float64(device.ReadSlice[float32](d, p.Value)[0]); math.Abs(got-want[i]) > 1e-6 {
				t.Errorf("%s: %s is %g, want %g", kind, p.Name, got, want[i])
			}
		}
	}
}
