package optimizer

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"monotron/csrc/cpu"
	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/golden"
	"monotron/internal/nf4"
	"monotron/internal/safetensors"
	"monotron/mpu"
	"monotron/mpu/comm/inproc"
)

// adam8Case is golden/optimizers/adamw_8bit/case.json.
type adam8Case struct {
	Steps       int
	LR          float64
	Betas       [2]float64
	Eps         float64
	WeightDecay float64 `json:"weight_decay"`
	Shapes      map[string][]int64
	Weights     int // of all steps
	Off         int `json:"weights_off_formula"`
}

func (c *adam8Case) config() Config {
	return Config{Kind: Adam8, AdamBeta1: c.Betas[0], AdamBeta2: c.Betas[1], AdamEps: c.Eps}
}

func adam8(t *testing.T) (c adam8Case, inputs, expected *safetensors.File) {
	t.Helper()
	golden.ReadJSON(t, golden.Dir(t, "optimizers", "adamw_8bit", "case.json"), &c)
	return c, openTensors(t, "optimizers/adamw_8bit", "inputs"), openTensors(t, "optimizers/adamw_8bit", "expected")
}

// Claim: the maps are those of bitsandbytes.
func TestMapsOfCodes(t *testing.T) {
	_, _, expected := adam8(t)
	if got := append(nf4.Dynamic[:], nf4.DynamicUnsigned[:]...); !slices.Equal(got, read32(t, expected, "maps")) {
		t.Errorf("%v", got)
	}
}

// Claim: four steps of tensors whose last block is short, whose rows are not multiples of a block, with blocks
// without a gradient and gradients down to 1e-20 have the codes and scales of bitsandbytes 0.50.2 on a CPU to the bit,
// and weights of its formula to the bit: bitsandbytes' own differ where PyTorch's square root is rounded to a
// neighbour, 15 of 86,360.
func TestAdam8Agrees(t *testing.T) {
	c, inputs, expected := adam8(t)
	onDevices(t, "", func(t *testing.T, d *device.Device) { adam8Steps(t, d, &c, inputs, expected) })
}

// onDevices runs a test on the reference and on the processor; a build without cgo skips the latter.
func onDevices(t *testing.T, name string, test func(*testing.T, *device.Device)) {
	t.Run("ref"+name, func(t *testing.T) {
		d := ref.Open()
		defer d.Close()
		test(t, d)
	})
	t.Run("cpu"+name, func(t *testing.T) {
		d, err := cpu.Open()
		if err != nil {
			t.Skip(err)
		}
		defer d.Close()
		test(t, d)
	})
}

func adam8Steps(t *testing.T, d *device.Device, c *adam8Case, inputs, expected *safetensors.File) {
	var params []*mpu.Param
	for name, shape := range c.Shapes {
		params = append(params, mpu.Uncut(name, mpu.Init{}, shape...))
		params[len(params)-1].NoDecay = false
	}
	slices.SortFunc(params, func(a, b *mpu.Param) int { return strings.Compare(a.Name, b.Name) })
	o := New(d, c.config(), params, device.F32, Groups{Families: map[mpu.Family]Family{}}, Sharding{})
	for _, p := range params {
		device.WriteSlice(d, p.Value, read32(t, inputs, "init."+p.Name))
	}
	off := 0
	for step := 1; step <= c.Steps; step++ {
		for _, p := range params {
			device.WriteSlice(d, p.Grad, read32(t, inputs, fmt.Sprintf("grad.%d.%s", step, p.Name)))
		}
		if r, err := o.Step(StepArgs{LR: c.LR, WeightDecay: c.WeightDecay, Factor: 1}); err != nil || r.Skipped {
			t.Fatal(r, err)
		}
		for _, s := range o.Stored() {
			kind, name, _ := strings.Cut(strings.TrimPrefix(s.Name, "optimizer."), ".")
			theirs := map[string]string{"exp_avg_codes": "state1", "exp_avg_absmax": "absmax1", "exp_avg_sq_codes": "state2", "exp_avg_sq_absmax": "absmax2"}[kind]
			if want := read32(t, expected, fmt.Sprintf("%s.%d.%s", theirs, step, name)); !slices.Equal(asFloats(d, s.Tensor), want) {
				t.Errorf("step %d: %s of %s differs", step, kind, name)
			}
		}
		for _, p := range params {
			got := device.ReadSlice[float32](d, p.Value)
			if !slices.Equal(got, read32(t, expected, fmt.Sprintf("formula.%d.%s", step, p.Name))) {
				t.Errorf("step %d: weights of %s are not the formula's", step, p.Name)
			}
			for i, want := range read32(t, expected, fmt.Sprintf("weight.%d.%s", step, p.Name)) {
				if got[i] != want {
					off++
				}
			}
		}
	}
	if off != c.Off {
		t.Errorf("%d of %d weights are not bitsandbytes', want %d", off, c.Weights, c.Off)
	}
}

func asFloats(d *device.Device, t device.Tensor) (values []float32) {
	for _, x := range readAll(t) {
		values = append(values, float32(x))
	}
	return values
}

// large is the toy on n data-parallel ranks with tensors whose moments are codes: some end within a block, shards end within tensors.
func large(n int) func(*inproc.World, int, *device.Device) (*toy, error) {
	return func(w *inproc.World, rank int, d *device.Device) (*toy, error) {
		m, err := dataParallel(n)(w, rank, d)
		if err != nil {
			return nil, err
		}
		normal := mpu.Init{Std: 0.5}
		experts := mpu.Uncut("experts.weight", normal, 3, 32, 128)
		experts.Each = func(i int64) string { return fmt.Sprintf("experts.%d.weight", i) }
		m.units = append(m.units, []*mpu.Param{mpu.Uncut("odd", normal, 70, 67), mpu.Uncut("rows", normal, 8, 512)}, []*mpu.Param{mpu.Uncut("bias", normal, 4100), experts})
		m.nameUnits()
		return m, nil
	}
}

// rest is one more step of s from where another run has ended.
func rest(s setup, from outcome) setup {
	s.steps, s.from = 1, from.state
	return s
}

// Claim: moments of 8 bits are the same under every sharding, and those that a checkpoint keeps are all: a run that
// starts from them in another sharding ends with the same bits.
func TestCodesOfEverySharding(t *testing.T) {
	base := setup{dtype: device.BF16, kind: Adam8, exact: true, steps: 3, model: large(1), world: 1}
	want, err := train(base)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"odd", "rows", "bias", "experts.0.weight", "experts.2.weight"} {
		for _, kind := range []string{StoredCodesM, StoredScalesM, StoredCodesV, StoredScalesV} {
			if want.state[kind+name] == nil {
				t.Errorf("no %s%s", kind, name)
			}
		}
	}
	if n := len(want.state[StoredScalesM+"odd"]); n != (70*67+255)/256 {
		t.Errorf("%d scales", n)
	}
	base.steps = 2
	half, err := train(base)
	if err != nil {
		t.Fatal(err)
	}
	half.state["steps"] = []float64{2}
	if want, err = train(rest(base, half)); err != nil {
		t.Fatal(err)
	}
	for _, sharding := range shardings() {
		s := rest(base, half)
		s.sharding, s.world, s.model = sharding, 2, large(2)
		full, err := train(s)
		if err == nil {
			err = errors.Join(full.state.sameAs(want.state, 0), full.grads.sameAs(want.grads, 0))
		}
		if err != nil {
			t.Errorf("%+v: %v", sharding, err)
		}
	}
}

// Claim: a parameter of which a rank would have parts of blocks is refused with the widest legal cut.
func TestCutBlocks(t *testing.T) {
	columns := func(width, ranks int64) *mpu.Param {
		p := mpu.Uncut("linear_fc2.weight", mpu.Init{}, 64, width)
		p.Pieces[0].Size, p.Shape = []int64{64, width / ranks}, []int64{64, width / ranks}
		return p
	}
	rows := mpu.Rows("linear_fc1.weight", mpu.Init{}, []int64{64, 96}, [][2]int64{{0, 4}}, 4)
	small := columns(32, 2)
	for _, c := range []struct {
		param *mpu.Param
		want  string
	}{
		{columns(1024, 4), ""}, {columns(1024, 8), "size 4"}, {columns(3072, 24), "size 12"}, {columns(384, 3), "size 1, or sizes for which each rank has a multiple of 256 elements"},
		{rows, "size 8"}, {small, ""},
	} {
		err := CheckBlocks(&Config{Kind: Adam8}, []*mpu.Param{c.param})
		if (err == nil) != (c.want == "") || err != nil && (!errors.Is(err, ErrCut) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", c.param, err, c.want)
		}
	}
	if err := CheckBlocks(&Config{Kind: Adam}, []*mpu.Param{columns(1024, 8)}); err != nil {
		t.Error(err)
	}
}
