package measure

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"

	"monotron/csrc/device"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/internal/system"
	"monotron/megatron/plan"
	"monotron/megatron/telemetry"
	"monotron/mpu"
	"monotron/tools/internal/command"
	"monotron/tools/internal/timing"
)

// Command is measure.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:      "measure",
		Usage:     "write the machine file of this machine, for plan run and plan search",
		ArgsUsage: "--output FILE",
		Description: "Runs training steps of small models with one rank on all threads, one rank per thread and two ranks per thread, and times every op at every shape; then collectives " +
			"among goroutines and processes, copies and the disk of FILE. Run nothing else on the machine at the same time.",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "output", Usage: "write this machine file, as in here.yaml"},
			&cli.StringFlag{Name: "name", Value: "here", Usage: "set the name of the machine"},
			&cli.BoolFlag{Name: "quick", Usage: "measure fewer shapes, for at most 3 minutes (default: at most 40)"},
		}, command.DeviceFlags()...),
		Action: func(c *cli.Context) error { return measureMachine(c, open) },
	})
}

func measureMachine(c *cli.Context, open func(string) (*device.Device, error)) error {
	if err := command.NoArgs(c); err != nil {
		return err
	}
	path := c.String("output")
	if path == "" {
		return exitcode.Errorf(exitcode.Usage, "--output is missing; give the machine file to write")
	}
	file, err := atomicfile.Create(path, 0o666) // before anything takes time
	if err != nil {
		return err
	}
	defer file.Abort()
	// The processor and the devices, then all measurements, as many as the time allows.
	one, err := command.Opener(c, open)
	if err != nil {
		return err
	}
	s := &survey{open: one, effort: thorough, folder: filepath.Dir(path), context: c}
	if c.Bool("quick") {
		s.effort = brief
	}
	if err := s.one(c.String("name")); err != nil {
		return err
	}
	tasks := s.tasks()
	bar := telemetry.NewProgress(os.Stderr, int64(len(tasks)), "measuring")
	defer bar.Close()
	began := time.Now()
	left, err := carryOut(tasks, s.effort.limit, time.Since, func() { bar.Add(1) })
	if err != nil {
		return err
	}
	bar.Close()
	// A machine file of the measurements, which plans must accept.
	if err := s.conclude(); err != nil {
		return err
	}
	text, err := yaml.Marshal(&s.machine)
	if err != nil {
		return exitcode.With(exitcode.Internal, err)
	}
	if _, err := plan.ParseMachine(text); err != nil {
		return exitcode.Errorf(exitcode.Internal, "the measurements do not make a valid machine file: %w", err)
	}
	if _, err := file.Write(text); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	if err := file.Commit(); err != nil {
		return err
	}
	// What was found, and how far it predicts itself.
	m, out := &s.machine, &command.Printer{W: c.App.Writer}
	out.Printf("%s: %d threads of %s; %d ops and shapes, %d collectives in %.0f s\n", path, m.Threads, s.processor, s.rows(), len(m.Collectives), time.Since(began).Seconds())
	if left > 0 {
		out.Printf("%d of %d measurements were left out after %v, because other programs use the processors; measure again on an idle machine\n", left, len(tasks), s.effort.limit)
	}
	if apart := s.summary(); apart != "" {
		out.Printf("%s\n", apart)
	}
	out.Printf("leave-one-out error of the predicted seconds: mean %.1f%%, worst op %.1f%%\n", 100*m.Checked.Mean, 100*m.Checked.Worst)
	return out.Err
}

// survey is a machine being measured.
type survey struct {
	context   *cli.Context
	open      func() (*device.Device, error)
	effort    surveyEffort
	folder    string // of the disk
	machine   plan.Machine
	processor string

	ops    map[opKey]*opTimes
	met    []metCase
	launch []float64 // seconds between ops, of each case

	normals   []float32 // what parameters start with
	distances []float64 // seconds of a word between two cores and back, before and after each visit
	peaks     map[device.DType]float64
}

type opKey struct {
	op, form string
	ranks    int
}

// surveyEffort is how much is measured.
type surveyEffort struct {
	hidden     []int
	batches    [][2]int // sequence, samples
	most       int      // hidden size times tokens: more takes long and runs at the rates of this
	cuts       []int    // tensor-parallel parts whose shapes are run
	visits     int      // to each model
	layers     int      // of a model, at most
	step       time.Duration
	groups     []int // ranks of a collective
	bytes      []float64
	collective time.Duration
	cubes      []int64
	copies     []int64
	product    time.Duration
	disk       int64
	limit      time.Duration // of all: what is optional and has not begun is left out
}

var thorough = surveyEffort{hidden: []int{128, 256, 512, 1024}, batches: [][2]int{{64, 1}, {128, 1}, {128, 4}, {256, 4}}, most: 512 << 9, cuts: []int{1, 2, 4}, visits: 3, layers: 8, step: 150 * time.Millisecond,
	groups: []int{2, 4, 8}, bytes: []float64{256, 16 << 10, 256 << 10, 4 << 20, 32 << 20}, collective: 15 * time.Millisecond,
	cubes: []int64{32, 64, 128, 256, 512, 1024, 2048}, copies: []int64{16 << 10, 256 << 10, 4 << 20, 64 << 20, 256 << 20}, product: 120 * time.Millisecond, disk: 512 << 20, limit: 40 * time.Minute}

var brief = surveyEffort{hidden: []int{128, 384}, batches: [][2]int{{64, 1}, {128, 2}}, most: 512 << 9, cuts: []int{1, 2}, visits: 2, layers: 8, step: 40 * time.Millisecond,
	groups: []int{2, 4}, bytes: []float64{256, 64 << 10, 4 << 20}, collective: 10 * time.Millisecond,
	cubes: []int64{64, 256, 1024}, copies: []int64{64 << 10, 4 << 20, 64 << 20}, product: 30 * time.Millisecond, disk: 64 << 20, limit: 3 * time.Minute}

// surveyTask is one entry of the progress bar.
type surveyTask struct {
	name     string
	optional bool // a plan can do without
	do       func() error
}

// carryOut does tasks in order; of those that have not begun when the limit is over only what a
// plan needs. left is how many were left out. done is called after each, done or left out.
func carryOut(tasks []surveyTask, limit time.Duration, since func(time.Time) time.Duration, done func()) (left int, err error) {
	began := time.Now()
	for _, t := range tasks {
		if t.optional && since(began) > limit {
			left++
		} else if err := t.do(); err != nil {
			return left, fmt.Errorf("%s: %w", t.name, err)
		}
		done()
	}
	return left, nil
}

// one finds what needs no clock.
func (s *survey) one(name string) error {
	d, err := s.open()
	if err != nil {
		return err
	}
	defer d.Close()
	if !d.OnHost() {
		return exitcode.Errorf(exitcode.Usage, "measure --device %s: only machines whose ranks share a CPU's threads are measured; for GPUs, use plan table --fit to find the constants of a machine", d.Name)
	}
	s.normals = make([]float32, 1<<16)
	mpu.Normals(timing.Seed, "measured", s.normals, 0.02)
	s.processor, s.ops, s.peaks = cmp.Or(system.Processor(), "a processor without a name"), map[opKey]*opTimes{}, map[device.DType]float64{}
	capacity := plan.HostCapacity().Bytes
	if capacity > 1<<50 {
		capacity = 1 << 34 // the system does not say
	}
	s.machine = plan.Machine{Name: name, Device: "cpu", PerNode: 1024, Memory: plan.Bytes(capacity), Threads: device.SharedPool().Threads(),
		About: fmt.Sprintf("monotron measure on %s, %d threads, %d cores, %s: %s", s.processor, device.SharedPool().Threads(), runtime.NumCPU(), d.Name, d.Describe())}
	return nil
}

// tasks are all measurements in their order: what a plan needs, then what makes it better. Further
// visits come last, because what disturbs the machine meanwhile is gone minutes later.
func (s *survey) tasks() (all []surveyTask) {
	add := func(name string, do func() error) { all = append(all, surveyTask{name: name, do: do}) }
	add("products", s.products)
	add("copies", s.copies)
	for _, ranks := range s.effort.groups {
		add(fmt.Sprintf("collectives of %d goroutines", ranks), func() error { return s.collectives(ranks) })
	}
	add("processes", s.processes)
	add("the disk", s.disk)
	cases := s.cases()
	for visit := range s.effort.visits {
		for _, c := range cases {
			optional := visit > 0 || c.model.HiddenSize > s.effort.hidden[0]
			all = append(all, surveyTask{c.String(), optional, func() error { return s.steps(c) }})
		}
	}
	return all
}

// products are the peak of each dtype, and the share of it that cubes reach.
func (s *survey) products() error {
	d, err := s.open()
	if err != nil {
		return err
	}
	defer d.Close()
	s.machine.Peak = map[string]float64{}
	for _, dtype := range []device.DType{device.F32, device.BF16} {
		for _, side := range s.effort.cubes {
			speed, err := device.MatmulSpeed(d, dtype, device.Product{M: side, N: side, K: side}, s.effort.product)
			if err != nil {
				return err
			}
			s.machine.Peak[dtype.String()] = max(s.machine.Peak[dtype.String()], speed.Sustained)
			if dtype == device.F32 {
				s.machine.Matmul = append(s.machine.Matmul, plan.Share{From: 2 * math.Pow(float64(side), 3), Share: speed.Sustained})
			}
		}
	}
	toShares(s.machine.Matmul, s.machine.Peak["f32"])
	s.machine.Attention.Share = s.machine.Matmul[len(s.machine.Matmul)/2].Share
	return nil
}

// toShares makes rates shares of the best.
func toShares(curve []plan.Share, best float64) {
	for i := range curve {
		curve[i].Share /= best
	}
}

func (s *survey) copies() error {
	d, err := s.open()
	if err != nil {
		return err
	}
	defer d.Close()
	for _, bytes := range s.effort.copies {
		speed, err := device.CopySpeed(d, bytes, s.effort.product)
		if err != nil {
			return err
		}
		s.machine.Stream = append(s.machine.Stream, plan.Share{From: 2 * float64(bytes), Share: speed})
	}
	s.machine.MemoryRate = s.machine.Stream[len(s.machine.Stream)-1].Share // what caches do not hold
	for i := range s.machine.Stream {
		s.machine.Stream[i].Share = min(2, s.machine.Stream[i].Share/s.machine.MemoryRate)
	}
	return nil
}

// rows are all measured ops and shapes.
func (s *survey) rows() (n int) {
	for _, o := range s.machine.Ops {
		n += len(o.Times)
	}
	return n
}

// conclude puts ops in order and says how far they can be believed.
func (s *survey) conclude() error {
	for _, o := range s.ops {
		s.machine.Ops = append(s.machine.Ops, o.conclude(s.near))
	}
	slices.SortFunc(s.machine.Ops, func(a, b plan.OpTimes) int {
		return cmp.Or(strings.Compare(a.Op, b.Op), strings.Compare(a.Form, b.Form), cmp.Compare(a.Ranks, b.Ranks))
	})
	slices.Sort(s.launch)
	s.machine.Launch = s.launch[len(s.launch)/2]
	if s.machine.Node.Rate == 0 { // no processes here
		s.machine.Node = plan.Link{Latency: 1e-4, Rate: s.machine.MemoryRate / 4}
	}
	s.machine.Between = s.machine.Node
	if len(s.distances) > 0 {
		s.machine.Apart = round(slices.Min(s.distances))
	}
	if err := s.meetings(); err != nil {
		return err
	}
	rows, mean, worst, err := s.machine.LeaveOneOut()
	s.machine.Checked = plan.Checked{How: "each op's seconds at a shape, predicted from other shapes; not complete steps", Rows: rows, Mean: mean, Worst: worst}
	return err
}
