package training

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/mpu/health/inject"
	"monotron/mpu/ranks"
)

// Replay runs a step again that dump has kept: the same weights, optimizer state and
// batch on the same layout, all ranks in this process. It prints what the residual
// stream holds as it leaves each layer, and where a value is first not finite. A step
// that is finite now is exitcode.Differs. device: "" is the recorded run's.
func Replay(folder, deviceName string, open func(name string) (*device.Device, error), out io.Writer) error {
	c, err := recordedConfig(folder)
	if err != nil {
		return err
	}
	if deviceName != "" {
		c.Device = deviceName
	}
	j := &Job{Config: *c, console: newConsole(Streams{Out: out}, 0)}
	if j.faults, err = inject.Parse(c.Watch.Inject); err != nil {
		return err
	}
	if j.schedule, err = rateSchedule(c); err != nil {
		return err
	}
	p := &replaying{folder: folder, out: out}
	if err := j.Ranks(nil, func() (*device.Device, error) { return open(c.Device) }, func(r *ranks.Rank) error { return p.rank(j, r) }); err != nil {
		return err
	}
	return p.print(c)
}

// recordedConfig is the configuration of a kept step, less what a run leaves behind.
func recordedConfig(folder string) (*config.Run, error) {
	list, err := native.List(folder)
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		return nil, exitcode.Errorf(exitcode.NoInput, "%s has no recorded step; give a folder named nonfinite_... of a --run-folder", folder)
	}
	f, err := native.OpenFolder(list[len(list)-1].Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	c := &config.Run{}
	if err := json.Unmarshal(f.Manifest.State.Config, c); err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "%s: the settings in the checkpoint cannot be read: %w", f.Path, err)
	}
	if c.Tuning.ByRows() {
		return nil, exitcode.Errorf(exitcode.Usage, "%s is a step of --tuning %s, which cannot be replayed yet: a replay would need the reference's log-probabilities, or the sampled answers", folder, c.Tuning.Method)
	}
	c.Log, c.Watch = config.Log{Interval: 1}, config.Watch{StallSeconds: c.Watch.StallSeconds, Inject: c.Watch.Inject}
	c.Checkpoint = config.Checkpoint{Load: folder}
	return c, nil
}

// replaying gathers what the ranks see.
type replaying struct {
	folder string
	out    io.Writer

	mu     sync.Mutex
	seen   []sight
	spot   *spot
	step   int64
	result error // of the step; nil: it is finite
}

// sight is a residual stream, or the loss, on one rank.
type sight struct {
	micro, depth, rank int
	most               float64 // largest finite magnitude
	bad, all           int
}

// rank runs one rank's part.
func (p *replaying) rank(j *Job, rank *ranks.Rank) error {
	r := &Run{Job: j, rank: rank, device: rank.Device}
	r.votes = r.device.Arena.Zeroed(device.Workspace, device.I64, 1)
	var err error
	if r.Engine, err = engine.New(rank, r.Config.Step, j.schedule); err != nil {
		return err
	}
	if r.log, err = newLogger(r); err != nil {
		return err
	}
	if err = r.Engine.ChooseAttention(microShapes(&r.Config), r.log.note); err != nil { // as the run did, else the numbers are others
		return err
	}
	if err = r.openSaver(); err != nil {
		return err
	}
	if err = r.restore(); err != nil {
		return err
	}
	batch, err := p.batch(&r.Config, rank.Coordinates.DP)
	if err != nil {
		return err
	}
	spot, err := r.locate(batch.Micros, batch.Consumed, func(micro, depth int, x device.Tensor) { p.see(rank, micro, depth, x) })
	if err != nil {
		return err
	}
	_, stepped := r.Engine.Step(batch.Micros)
	if stepped != nil {
		if spot, err = r.locate(batch.Micros, batch.Consumed, nil); err != nil { // now with gradients
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spot, p.step, p.result = spot, batch.Step, stepped
	return nil
}

// batch reads what a data-parallel rank trained on, and checks it.
func (p *replaying) batch(c *config.Run, dp int) (*recorded, error) {
	path := batchFile(p.folder, dp)
	text, err := exitcode.ReadFile(path, 1<<30)
	if err != nil {
		return nil, err
	}
	b := &recorded{}
	if err := json.Unmarshal(text, b); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", path, err)
	}
	for i, m := range b.Micros {
		if m == nil || !fits(m, c) {
			return nil, exitcode.Errorf(exitcode.BadData, "%s: micro-batch %d does not match this model: its sizes, ids or positions differ", path, i)
		}
	}
	if len(b.Micros) == 0 {
		return nil, exitcode.Errorf(exitcode.BadData, "%s has no micro-batches", path)
	}
	return b, nil
}

// fits reports whether a micro-batch from outside is one of the model's.
func fits(m *engine.Micro, c *config.Run) bool {
	rows, n := len(m.Tokens), c.SeqLength
	if rows == 0 || len(m.Labels) != rows || len(m.LossMask) != rows || len(m.PositionIDs) != rows || len(m.Samples) != rows || (m.DocStart != nil && len(m.DocStart) != rows) {
		return false
	}
	below := func(ids []int32, limit int) bool {
		return len(ids) == n && !slices.ContainsFunc(ids, func(v int32) bool { return v < 0 || int(v) >= limit })
	}
	for i := range rows {
		if !below(m.Tokens[i], c.Model.PaddedVocabSize) || !below(m.Labels[i], c.Model.PaddedVocabSize) || !below(m.PositionIDs[i], n) || len(m.LossMask[i]) != n {
			return false
		}
		if m.DocStart != nil && !below(m.DocStart[i], n) {
			return false
		}
	}
	return true
}

// see notes what a rank's stream holds.
func (p *replaying) see(r *ranks.Rank, micro, depth int, x device.Tensor) {
	s := sight{micro: micro, depth: depth, rank: r.Number, bad: notFinite(r.Device, x), all: int(x.Len()), most: largest(r.Device, x)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, s)
}

// largest is the largest finite magnitude in x.
func largest(d *device.Device, x device.Tensor) (most float64) {
	x = x.Reshape(x.Len())
	var values []float32
	switch x.DType {
	case device.F32:
		values = device.ReadSlice[float32](d, x)
	case device.BF16, device.F16:
		raw := device.ReadSlice[uint16](d, x)
		values = make([]float32, len(raw))
		if x.DType == device.BF16 {
			device.BF16ToF32(values, raw)
		} else {
			device.F16ToF32(values, raw)
		}
	}
	for _, v := range values {
		if a := math.Abs(float64(v)); a > most && !math.IsInf(a, 0) {
			most = a
		}
	}
	return most
}

// print prints what was seen, the bad micro-batch in full.
func (p *replaying) print(c *config.Run) error {
	slices.SortFunc(p.seen, func(a, b sight) int {
		for _, d := range []int{a.micro - b.micro, a.depth - b.depth, a.rank - b.rank} {
			if d != 0 {
				return d
			}
		}
		return 0
	})
	micro := max(0, p.spot.Micro)
	fmt.Fprintf(p.out, "step %d again, on %d ranks of this process; micro-batch %d:\n", p.step, c.Layout.Sizes().World(), micro)
	for _, s := range p.seen {
		if s.micro == micro {
			at := spot{Depth: s.depth}
			fmt.Fprintf(p.out, "  rank %d  %-24s  largest %-12.6g  not finite %d of %d\n", s.rank, at.layer(), s.most, s.bad, s.all)
		}
	}
	if p.result == nil {
		return exitcode.Errorf(exitcode.Differs, "every value of step %d is finite when the step is repeated", p.step)
	}
	_, err := fmt.Fprintf(p.out, "%v\n%v\n", p.result, p.spot)
	return exitcode.With(exitcode.IO, err)
}
