package layouts

import (
	"slices"
	"strings"
	"testing"

	"monotron/internal/drawn"
	"monotron/internal/exitcode"
)

// Claim: no layout changes the maths of any of the shapes. A draw of them here; `monotron verify`
// tries all.
func TestLayoutsAgree(t *testing.T) {
	d := newSampler(1)
	defer d.said(t)
	for _, s := range drawn.Part(t, Shapes, len(Shapes)/3) {
		m, err := Builtin(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		d.agree(t, m, Options{World: 8, Steps: 2})
	}
}

// Claim: no layout changes Muon's updates: matrices are complete wherever their parts are, of
// query groups that ranks share and of experts too.
func TestLayoutsAgreeByMuon(t *testing.T) {
	d := newSampler(2)
	defer d.said(t)
	for _, flags := range []string{"llama --optimizer muon --muon-nesterov --muon-split-gate --muon-scalar-lr-ratio 0.5", "deepseek-moe --optimizer muon --muon-no-split-qkv --muon-split-gate"} {
		words := strings.Fields(flags)
		m, err := Builtin(words[0], words[1:]...)
		if err != nil {
			t.Fatal(err)
		}
		d.agree(t, m, Options{World: 4, Steps: 2})
	}
}

// Claim: settings under which rounding decides a move are refused by name, unless bits are compared.
func TestRoundingIsNotCompared(t *testing.T) {
	for _, flags := range []string{"--optimizer lion", "--optimizer muon --muon-scalar-optimizer lion", "--optimizer adaptive_muon", "--optimizer adamw_8bit", "--fp8-format hybrid"} {
		words := strings.Fields(flags)
		if _, err := Builtin("llama", words...); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), "--bits") {
			t.Errorf("%s: %v", flags, err)
		}
		if _, err := Builtin("llama", append(words, "--layout-invariant")...); err != nil {
			t.Errorf("%s with --layout-invariant: %v", flags, err)
		}
	}
	if _, err := Builtin("llama", "--optimizer", "adaptive_muon", "--adaptive-muon-moment2-method", "normuon"); err != nil {
		t.Error(err)
	}
}

// Claim: a fault in a single pass is seen wherever it is, also where it moves neither
// loss nor norm by more than rounding: one sum of a late layer of BLOOM, whose
// normed embedding outweighs the layers, or one exchange of its keys, in a later step
// and in the evaluation.
func TestFaultInOnePass(t *testing.T) {
	bloom, err := Builtin("bloom")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		world          int
		layout, mutant string
	}{
		{2, "tp2 recompute-full-uniform distributed", "scaled: tp all_reduce(sum) in mpu.ReduceFromRegionForward < mpu.leave < mpu.Region.scattered, call"},
		{2, "cp2 p2p optim", "cp exchange in mpu.Context.Around < model.ring.forward < model.attention.forward, call"},
		{4, "cp4 a2a+p2p optim_grads_params", "cp exchange in mpu.Context.Around < model.ring.forward < model.turned.forward, call"},
	} {
		r, err := Prove([]Model{bloom}, Options{World: c.world, Steps: 3, Mutate: true, Only: c.layout, Mutant: c.mutant, Open: open, Reported: func(Progress) {}})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Mutants) < 3 {
			t.Errorf("%s: %d mutants: not a few calls of the training", c.layout, len(r.Mutants))
		}
		for _, m := range r.Mutants {
			t.Logf("%s: %s", m.Name, m.By)
			if !m.Caught {
				t.Errorf("%s is not caught", m.Name)
			}
		}
	}
}

// Claim: faults in what tuning alone has are seen: the sum of an adapter's partial gradients, of the squares of DoRA's rows,
// and in the pass that gives a preference its reference.
func TestTunedFaults(t *testing.T) {
	for _, c := range []struct{ shape, layout, mutant string }{
		{"lora", "tp2 dp2", "dropped: tp all_reduce(sum) in optimizer.Optimizer.sumParts < optimizer.Optimizer.finalize < optimizer.Optimizer.Step, call 2 of 3"},
		{"dora", "tp2 dp2", "mis-scaled: tp all_reduce(sum) in mpu.adapter.sum < mpu.adapter.startMagnitudes < mpu.RowParallelLinear.StartMagnitudes, call 6 of"},
		{"dpo", "tp2 dp2", "doubled: tp all_reduce(sum) in mpu.ReduceFromRegionForward < mpu.leave < mpu.VocabParallelEmbedding.Forward, call 1 of"},
	} {
		m, err := Builtin(c.shape)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Prove([]Model{m}, Options{World: 4, Steps: 3, Mutate: true, Only: c.layout, Mutant: c.mutant, Open: open, Reported: func(Progress) {}})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Mutants) == 0 {
			t.Errorf("%s: no mutant is %q", c.shape, c.mutant)
		}
		for _, m := range r.Mutants {
			t.Logf("%s: %s", m.Name, m.By)
			if !m.Caught {
				t.Errorf("%s is not caught", m.Name)
			}
		}
	}
}

// Claim: the global balancing loss of data-parallel ranks is that of one rank whose
// micro-batches have as many samples as theirs together, with --moe-global-aux-exact as
// strong, else a dp-th of it; and it belongs to no other.
func TestGlobalLossOfTheRanksTogether(t *testing.T) {
	for _, exact := range []bool{false, true} {
		m, err := Builtin("global-moe")
		if err != nil {
			t.Fatal(err)
		}
		m.Config.Model.Experts.GlobalExact, m.Config.GlobalBatchSize = exact, 8
		o := Options{World: 2, Only: "dp2 ep2 recompute-moe"}
		v := o.chosen(o.candidates(m))[0]
		got, err := Train(m, v, 1, open, Setup{})
		if err != nil {
			t.Fatal(err)
		}
		for _, dp := range []int{1, 2} {
			one, plain := m.reference(dp)
			want, err := Train(one, plain, 1, open, Setup{})
			if err != nil {
				t.Fatal(err)
			}
			if d := compare(got, want, BoundsOf("")); d.Over != (dp != 2) {
				t.Errorf("exact %t: two ranks beside one whose micro-batches have %d samples: %+v", exact, plain.MicroBatch, d)
			}
		}
		weak := m
		e := *m.Config.Model.Experts
		e.GlobalExact, weak.Config.Model.Experts = !exact, &e
		one, plain := weak.reference(2)
		want, err := Train(one, plain, 1, open, Setup{})
		if err != nil {
			t.Fatal(err)
		}
		if !compare(got, want, BoundsOf("")).Over {
			t.Errorf("exact %t: the loss may be of either strength", exact)
		}
	}
}

// Claim: every layout that --mutate names is one of those that are legal; a name
// that fits none would leave its collectives unbroken, and nobody would see it.
func TestMutatedLayoutsExist(t *testing.T) {
	m, err := Builtin("gpt2")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{World: 8, Mutate: true}
	if names := o.Names(m); !slices.Equal(names, mutated) {
		t.Errorf("of %q there are %q", mutated, names)
	}
}

// Claim: the same of the layouts of experts: those that no shape has would be broken nowhere.
func TestMutatedMixturesExist(t *testing.T) {
	var found []string
	for _, shape := range []string{"mixtral", "deepseek-moe"} {
		m, err := Builtin(shape)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, (&Options{World: 8, Mutate: true}).Names(m)...)
	}
	for _, name := range mutatedMixtures {
		if !slices.Contains(found, name) {
			t.Errorf("no shape has %q; there are %q", name, found)
		}
	}
}

// Claim: the flags of a training run name the model, whatever ranks, folders and
// schedule they ask for (examples/gpt3 of Megatron-LM, the 175B model).
func TestModelOfATrainingRun(t *testing.T) {
	m, err := FromFlags(strings.Fields("--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 --max-position-embeddings 2048 "+
		"--micro-batch-size 1 --global-batch-size 1536 --rampup-batch-size 16 16 5859375 --train-iters 500000 --weight-decay 0.1 --lr 6.0e-5 "+
		"--lr-decay-style cosine --min-lr 6.0e-6 --lr-warmup-fraction .001 --lr-decay-iters 430000 --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 "+
		"--num-layers-per-virtual-pipeline-stage 2 --sequence-parallel --use-distributed-optimizer --swiglu --save ckpt --load ckpt --data-path x"), false)
	if err != nil {
		t.Fatal(err)
	}
	if m.Config.Model.NumLayers != 8 || m.Config.Model.HiddenSize != 32 || !m.Config.Model.Gated() || m.Config.Layout.TP > 1 || m.Config.Checkpoint.Save != "" {
		t.Errorf("%+v", m.Config)
	}
	if len(Legal(&m.Config, 4)) == 0 {
		t.Error("no layout is legal")
	}
}

// Claim: with --layout-invariant the model of a training command line has sums on grids, as wide as
// the batches that are trained here, whatever those of the command are and where it has none, and as
// many leaves as its smaller axes have.
func TestBitsOfATrainingRun(t *testing.T) {
	for _, batch := range []string{"--kv-channels 12 --group-query-attention --num-query-groups 1", "--micro-batch-size 1 --global-batch-size 2 --reduction-leaves 4",
		"--kv-channels 64 --ffn-hidden-size 256 --reduction-leaves 64"} {
		m, err := FromFlags(strings.Fields("--layout-invariant --num-layers 4 --hidden-size 88 --kv-channels 11 --num-attention-heads 8 --ffn-hidden-size 200 --seq-length 64 "+batch), false)
		if err != nil {
			t.Fatal(err)
		}
		if m.Config.LeafSamples != m.Config.GlobalBatchSize {
			t.Errorf("%q: grids for %d samples, batches of %d", batch, m.Config.LeafSamples, m.Config.GlobalBatchSize)
		}
		r, err := Prove([]Model{m}, Options{World: 2, Steps: 1, Stride: 240, Bits: true, Open: openRef, Reported: func(Progress) {}})
		if err != nil {
			t.Fatal(err)
		}
		if differ, _ := r.Failed(); differ > 0 || len(r.Rows) == 0 {
			t.Errorf("%q: %d of %d layouts differ", batch, differ, len(r.Rows))
		}
	}
}

// Claim (docs/invariance.md): with --layout-invariant no layout changes a bit, in f32 and bf16; and faults
// of order alone are seen: sums added in rank order, other leaves, none. Some layouts of up to 4 ranks here;
// `monotron verify --bits` tries all.
func TestLayoutsGiveTheSameBits(t *testing.T) {
	refused := 0
	type row struct {
		shape, flags, only string
		stride             int
	}
	always := []row{
		{"gpt2", "", "", 97},
		{"llama", "--bf16 --qk-layernorm --attention-output-gate", "", 97},
		{"llama", "--softmax-type learnable", "tp4", 5}, // ranks share query groups
		{"mixtral", "--moe-z-loss-coeff 0.001", "", 211},
		{"deepseek-moe", "--bf16 --moe-shared-expert-gate", "", 211},
	}
	others := []row{
		{"mla", "--bf16", "tp2 sp dp2 recompute-full-block", 1},
		{"mtp", "", "tp2 sp dp2 recompute-full-block", 1},
		{"delta", "", "tp2 sp dp2 recompute-full-block", 1},
		{"mamba", "", "tp2 sp dp2 recompute-full-block", 1},
		{"mamba", "--bf16", "cp2 a2a", 7},
		{"granite4-h", "", "pp2 dp2 optim", 1},
		{"gemma4", "", "tp2 sp dp2 recompute-full-block", 1},
		{"gemma4-small", "", "tp2 sp dp2 recompute-full-block", 1},
		{"gemma4-moe", "--bf16", "tp2 sp dp2 recompute-full-block", 1},
		{"lfm2", "--bf16", "tp2 sp dp2 recompute-full-block", 1},
		{"gemma3", "", "tp2 sp dp2 recompute-full-block", 1},
		{"gpt-oss", "", "tp2 sp dp2 ep2 optim", 1},
		{"deepseek-v3", "--bf16", "pp2 dp2 ep2 optim", 1},
		{"qwen3-next", "", "tp2 sp dp2 ep2 optim", 1},
		{"llama", "--optimizer muon", "tp2 sp dp2 recompute-full-block", 1},
		{"llama", "--optimizer adaptive_muon --adaptive-muon-moment2-method normuon --muon-coefficient-type polar_express_nanochat", "tp2 sp dp2 optim", 1},
		{"llama", "--fp8-format hybrid --fp8-recipe blockwise --num-layers 2 --global-batch-size 8", "tp2 sp dp2 optim_grads", 1},
		{"gpt2", "--bf16 --fp8-format hybrid --fp8-recipe tensorwise", "tp2 cp2 a2a optim overlap late-gather", 1},
		{"mla", "--fp8-format e4m3 --fp8-recipe tensorwise", "tp2 sp dp2 recompute-full-block", 1},
		{"mtp", "--fp8-format hybrid --fp8-recipe mxfp8", "tp2 sp dp2 recompute-full-block", 1},
		{"llama", "--bf16 --fp8-format hybrid --fp8-amax-history-len 2 --fp8-amax-compute-algo max", "tp2 sp dp2 recompute-full-block", 1},
		{"mixtral", "--fp8-format hybrid --fp8-amax-history-len 2 --fp8-amax-compute-algo max", "tp2 sp dp2 ep2", 9},
		{"mtp", "--fp8-format e4m3 --fp8-margin 1 --no-fp8-wgrad", "pp2 dp2 optim", 1},
		{"llama", "--optimizer muon --muon-per-head", "tp2 sp dp2 recompute-full-block", 1},
		{"llama", "--optimizer adamw_8bit --num-layers 2 --global-batch-size 8", "tp2 sp dp2 optim_grads_params", 1},
	}
	for _, c := range append(always, drawn.Part(t, others, len(others)/3)...) {
		m, err := Builtin(c.shape, strings.Fields("--layout-invariant "+c.flags)...)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Prove([]Model{m}, Options{World: 4, Steps: 2, Only: c.only, Stride: c.stride, Bits: true, Open: open, Reported: func(Progress) {}})
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s", r.said())
		if len(r.Rows) == 0 {
			t.Errorf("%s %q: no layouts", c.shape, c.flags)
		}
		refused += len(r.Refused)
		for _, row := range r.Rows {
			if !row.OK {
				t.Errorf("%s, %s: %s", row.Model, row.Layout, row.Problem)
			}
		}
	}
	if refused == 0 {
		t.Error("no layout was left out, though some have sums with an order")
	}
}

// Claim: with --layout-invariant every shape is the same model, to rounding, as without: losses, gradients and
// weights of one rank.
func TestLeavesTrainTheSameModel(t *testing.T) {
	for _, s := range drawn.Part(t, Shapes, len(Shapes)/3) {
		if plain, err := Builtin(s.Name); err != nil {
			t.Fatal(err)
		} else if c := plain.Config; s.Name == "global-moe" || c.Adapter.Given() || c.Tuning.Data != "" { // refused
			continue
		}
		flags := strings.Fields("--calculate-per-token-loss --make-vocab-size-divisible-by 136")
		if s.Name == "mixtral" || s.Name == "granite4-h" { // their loss is of the micro-batch
			flags = append(flags, "--moe-router-load-balancing-type", "seq_aux_loss")
		}
		var outs [2]*Outcome
		for i, more := range [][]string{nil, {"--layout-invariant", "--make-vocab-size-divisible-by", "17"}} { // times 8 leaves
			m, err := Builtin(s.Name, slices.Concat(flags, more)...)
			if err != nil {
				t.Fatal(err)
			}
			if outs[i], err = Train(m, One(&m.Config), 2, open, Setup{}); err != nil {
				t.Fatal(err)
			}
		}
		if d := compare(outs[1], outs[0], BoundsOf("")); d.Over {
			t.Errorf("%s: %s", s.Name, d.where(BoundsOf("")))
		}
	}
}

// Claim: a sum that is added in another order than the leaves' is seen.
func TestFaultsOfOrder(t *testing.T) {
	m, err := Builtin("gpt2", "--layout-invariant")
	if err != nil {
		t.Fatal(err)
	}
	for _, mutant := range []string{inline + ": tp reduce_scatter(tree) in mpu.Region.addLeaves < mpu.leave < mpu.Region.scattered", "leaves instead of 8"} {
		r, err := Prove([]Model{m}, Options{World: 4, Steps: 1, Only: "tp4 sp", Mutate: true, Mutant: mutant, Bits: true, Open: open, Reported: func(Progress) {}})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Mutants) == 0 {
			t.Errorf("%s: there is no such mutant", mutant)
		}
		for _, mu := range r.Mutants {
			if !mu.Caught {
				t.Errorf("%s was not caught", mu.Name)
			}
		}
	}
}
