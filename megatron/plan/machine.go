package plan

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"monotron/internal/argv"
	"monotron/internal/exitcode"
)

// Machine is a cluster as a plan sees it; docs/plan.md lists the fields of its file.
type Machine struct {
	Name    string `yaml:"name"`
	About   string `yaml:"about"`                 // where the numbers come from
	Device  string `yaml:"device"`                // cpu, cuda
	PerNode int    `yaml:"devices_per_node"`      // ranks of a node
	Memory  Bytes  `yaml:"memory"`                // of a device, for tensors
	Host    Bytes  `yaml:"host_memory,omitempty"` // of a node, for the memory of its ranks outside devices; 0: unknown

	Peak       map[string]float64 `yaml:"peak_flops"`              // of products, by dtype: f32, bf16, f16
	MemoryRate float64            `yaml:"memory_bytes_per_second"` // read and written
	Matmul     []Share            `yaml:"matmul_share"`            // of the peak, by the operations of a product
	Stream     []Share            `yaml:"stream_share"`            // of the memory's rate, by the bytes of an op
	Attention  Attention          `yaml:"attention"`
	Launch     float64            `yaml:"seconds_per_op"` // of each, in addition to its work

	Node    Link `yaml:"inside_node"`
	Between Link `yaml:"between_nodes"`

	Sends Sends `yaml:"sends,omitempty"` // how stages of a pipeline hand on values

	Threads     int               `yaml:"threads,omitempty"` // that the ranks of a node share; 0: a rank has a device of its own
	Ops         []OpTimes         `yaml:"ops,omitempty"`     // where ranks share threads: what was timed there
	Collectives []CollectiveTimes `yaml:"collectives,omitempty"`
	Meetings    []MeetingTimes    `yaml:"meetings,omitempty"`
	Disk        Disk              `yaml:"disk,omitempty"`
	Apart       float64           `yaml:"core_round_trip_seconds,omitempty"` // of a word between two cores, when ops were timed; for people

	DeviceHours float64 `yaml:"device_hours_between_failures,omitempty"` // mean; 0: not known

	GradientBytes int `yaml:"gradient_bytes,omitempty"` // that travel for a parameter's gradient; 0: 4, as here

	Constants map[string]Constants `yaml:"constants,omitempty"` // by regime; "": of all that have none
	Flags     []string             `yaml:"flags,omitempty"`     // of the runs that rows of a table stand for
	Regimes   map[string][]string  `yaml:"regimes,omitempty"`   // more of them, by regime
	// By regime: memory of the program of a table's rows that this one does not need.
	ProgramMemory map[string]ProgramMemory `yaml:"held_beside,omitempty"`
	Checked       Checked                  `yaml:"checked"`

	measured *measured // nil: ranks share nothing
}

// ProgramMemory is memory of a rank.
type ProgramMemory struct {
	Bytes        Bytes   `yaml:"bytes"`
	PerParameter float64 `yaml:"per_parameter"` // bytes for each parameter of the rank; negative: it needed less
}

// Share is how much of a rate is reached by what is at least so large.
type Share struct {
	From  float64 `yaml:"from"`
	Share float64 `yaml:"share"`
}

// Attention is how fast attention runs, and whether its scores pass through memory.
type Attention struct {
	Share  float64 `yaml:"share"`                  // of the peak
	Scores bool    `yaml:"keeps_scores,omitempty"` // kernels of their own for products and softmax, over all pairs
	// Of the peak, where a head's channels are not a multiple of OddMultiple; 0: as Share.
	OddShare    float64 `yaml:"odd_share,omitempty"`
	OddMultiple int     `yaml:"aligned_channels,omitempty"` // 8 for tensor cores of 16-bit values
}

// Link is how devices reach each other. Between nodes the rate is a node's, shared by its devices.
type Link struct {
	Latency float64 `yaml:"latency_seconds"`
	Rate    float64 `yaml:"bytes_per_second"` // each way
}

// Sends is how another program's stages hand on values; zero: as here.
type Sends struct {
	Sliced   bool `yaml:"sliced"`   // a tensor-parallel rank sends its part, and those that received gather
	Blocking bool `yaml:"blocking"` // neither end computes meanwhile
}

// Constants scale what the file says, after measured runs.
type Constants struct {
	Compute float64 `yaml:"compute" json:"compute"` // times the seconds of products and attention
	Move    float64 `yaml:"move" json:"move"`       // times those of memory, of links inside a node and of beginning ops
	Between float64 `yaml:"between" json:"between"` // times those of links between nodes, but for what stages send
}

// Checked says how far times were off where they could be compared with measured ones.
type Checked struct {
	How   string  `yaml:"how"`
	Rows  int     `yaml:"rows"`
	Mean  float64 `yaml:"mean_error"` // fractions
	Worst float64 `yaml:"worst_error"`
}

// Bytes is a size that a file writes as 80GiB, 512MiB or a number.
type Bytes int64

// UnmarshalYAML reads it.
func (b *Bytes) UnmarshalYAML(n *yaml.Node) error {
	size, err := ParseBytes(n.Value)
	*b = Bytes(size)
	return err
}

// ParseBytes reads 78GiB, 500MB or 1024.
func ParseBytes(text string) (int64, error) {
	number, unit := strings.TrimSpace(text), float64(1)
	for _, u := range []struct {
		name string
		size float64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}} {
		if rest, is := strings.CutSuffix(number, u.name); is {
			number, unit = strings.TrimSpace(rest), u.size
			break
		}
	}
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || !(x > 0 && x*unit < 1<<60) {
		return 0, exitcode.Errorf(exitcode.Usage, "%q is not a size; write it as 80GiB, 512MiB or 1000000", text)
	}
	return int64(x * unit), nil
}

//go:embed machines/*.yaml
var shipped embed.FS

// Machines are the names of those that come with the program.
func Machines() (names []string) {
	files, _ := shipped.ReadDir("machines")
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".yaml"))
	}
	sort.Strings(names)
	return names
}

// mostMachine bounds a machine file, in bytes.
const mostMachine = 1 << 20

// ReadMachine reads one of Machines by its name, or a file.
func ReadMachine(name string) (*Machine, error) {
	text, err := shipped.ReadFile("machines/" + name + ".yaml")
	if err != nil {
		if _, missing := os.Stat(name); missing != nil && !strings.ContainsAny(name, "./"+string(filepath.Separator)) {
			return nil, exitcode.Errorf(exitcode.Usage, "--machine %s is unknown; choose from %s, or give the path of a machine file", argv.Shown(name), strings.Join(Machines(), ", "))
		}
		if text, err = exitcode.ReadFile(name, mostMachine); err != nil {
			return nil, fmt.Errorf("--machine: %w", err)
		}
	}
	m, err := ParseMachine(text)
	if err != nil {
		return nil, fmt.Errorf("--machine %s: %w", name, err)
	}
	return m, nil
}

// ParseMachine reads the text of a machine file; the error lists all that is wrong.
func ParseMachine(text []byte) (*Machine, error) {
	m := &Machine{}
	// Aliases could make a short text endless: they are bounded before it is decoded.
	var all yaml.Node
	if err := yaml.Unmarshal(text, &all); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s", strings.TrimPrefix(err.Error(), "yaml: "))
	} else if err := bounded(&all); err != nil {
		return nil, exitcode.With(exitcode.BadData, err)
	}
	// Keys that do not exist are errors, of which the first few are named.
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(m); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		var wrong *yaml.TypeError
		if errors.As(err, &wrong) {
			err = errors.New(problemsOf(wrong.Errors))
		}
		return nil, exitcode.With(exitcode.BadData, err)
	}
	// One document, complete, with values that fit together.
	if err := d.Decode(&yaml.Node{}); !errors.Is(err, io.EOF) {
		return nil, exitcode.Errorf(exitcode.BadData, "a second YAML document begins after that of the machine (---); a file must describe one machine")
	}
	if err := m.check(); err != nil {
		return nil, exitcode.With(exitcode.BadData, err)
	}
	if m.Threads > 0 {
		m.index()
	}
	return m, nil
}

// mostKeys bounds the fields of one mapping, which yaml compares each with each; mostProblems the problems reported.
const mostKeys, mostProblems = 1000, 20

// problemsOf are the first few errors of yaml, in words that name no type of Go.
func problemsOf(all []string) string {
	var list []string
	for _, text := range all[:min(len(all), mostProblems)] {
		text = unknownField.ReplaceAllString(text, "unknown field $1")
		list = append(list, kindNames.Replace(wrongValue.ReplaceAllString(text, "a value of the wrong type ($1)")))
	}
	if more := len(all) - mostProblems; more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(list, "; ")
}

// Errors of yaml, which name types of Go: unknownField for a field that does not exist, wrongValue for a value.
var (
	unknownField = regexp.MustCompile(`field (\S+) not found in type \S+`)
	wrongValue   = regexp.MustCompile("cannot unmarshal !!(\\w+(?: `.*`)?) into .+")
)

// kindNames are the words for the kinds of values in errors of yaml.
var kindNames = strings.NewReplacer("(str `", "(string `", "(seq)", "(list)", "(map)", "(object)")

// bounded refuses a node with a mapping of more fields than any machine has.
func bounded(n *yaml.Node) error {
	if n.Kind == yaml.MappingNode && len(n.Content)/2 > mostKeys {
		return fmt.Errorf("line %d: an object has %d fields; at most %d are allowed", n.Line, len(n.Content)/2, mostKeys)
	}
	for _, child := range n.Content {
		if err := bounded(child); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) check() error {
	var problems []error
	within := func(name string, x, low, high float64) {
		if !(x >= low && x <= high) { // NaN is in no range
			problems = append(problems, fmt.Errorf("%s is %g; it must be from %g to %g", name, x, low, high))
		}
	}
	// The machine.
	if m.Device != "cpu" && m.Device != "cuda" {
		problems = append(problems, fmt.Errorf("device is %q; it must be cpu or cuda", m.Device))
	}
	within("devices_per_node", float64(m.PerNode), 1, 1<<16)
	within("memory", float64(m.Memory), 1<<20, 1<<50)
	within("host_memory", float64(m.Host), 0, 1<<50)
	within("memory_bytes_per_second", m.MemoryRate, 1e6, 1e16)
	within("seconds_per_op", m.Launch, 0, 1)
	within("attention.share", m.Attention.Share, 1e-6, 1)
	within("attention.odd_share", m.Attention.OddShare, 0, 1)
	within("attention.aligned_channels", float64(m.Attention.OddMultiple), 0, 1024)
	within("device_hours_between_failures", m.DeviceHours, 0, 1e9)
	within("gradient_bytes", float64(m.GradientBytes), 0, 32)
	within("checked.mean_error", m.Checked.Mean, 0, 10)
	within("checked.worst_error", m.Checked.Worst, 0, 10)
	// Rates: peaks by data type, curves of shares of them, links.
	if len(m.Peak) == 0 {
		problems = append(problems, errors.New("peak_flops is missing; give the operations per second for each dtype (f32, bf16, f16)"))
	}
	for dtype, peak := range m.Peak {
		if !slices.Contains([]string{"f32", "bf16", "f16"}, dtype) {
			problems = append(problems, fmt.Errorf("peak_flops: the dtype must be f32, bf16 or f16, not %q", dtype))
		}
		within("peak_flops of "+dtype, peak, 1e6, 1e18)
	}
	for name, curve := range map[string][]Share{"matmul_share": m.Matmul, "stream_share": m.Stream} {
		if len(curve) == 0 {
			problems = append(problems, fmt.Errorf("%s is missing; give a list of {from, share}", name))
		}
		for i, s := range curve {
			within(name+".share", s.Share, 1e-6, 2)
			within(name+".from", s.From, 0, 1e24)
			if i > 0 && s.From <= curve[i-1].From {
				problems = append(problems, fmt.Errorf("%s: the values of \"from\" must increase from one entry to the next", name))
			}
		}
	}
	for name, l := range map[string]Link{"inside_node": m.Node, "between_nodes": m.Between} {
		within(name+".latency_seconds", l.Latency, 0, 10)
		within(name+".bytes_per_second", l.Rate, 1e3, 1e16)
	}
	// Constants that were fitted to tables of measured runs.
	for name, h := range m.ProgramMemory {
		within("held_beside "+name+" per_parameter", h.PerParameter, -64, 64)
	}
	for name, k := range m.Constants {
		within("constants "+name+" compute", k.Compute, 0, 1e4)
		within("constants "+name+" move", k.Move, 0, 1e4)
		within("constants "+name+" between", k.Between, 0, 1e4)
	}
	problems = append(problems, m.checkMeasured()...)
	if more := len(problems) - mostProblems; more > 0 {
		problems = append(problems[:mostProblems], fmt.Errorf("and %d more", more))
	}
	return errors.Join(problems...)
}

// ConstantsOf are those of a regime.
func (m *Machine) ConstantsOf(regime string) Constants {
	for _, name := range []string{regime, ""} {
		if k, has := m.Constants[name]; has {
			return k
		}
	}
	return Constants{1, 1, 1}
}

// at is the share of a curve for a size, between its points by the logarithm of the size.
func at(curve []Share, size float64) float64 {
	i, _ := slices.BinarySearchFunc(curve, size, func(s Share, x float64) int {
		if s.From <= x {
			return -1
		}
		return 1
	})
	switch {
	case i == 0:
		return curve[0].Share
	case i == len(curve):
		return curve[i-1].Share
	}
	a, b := curve[i-1], curve[i]
	f := math.Log(size/math.Max(1, a.From)) / math.Log(b.From/math.Max(1, a.From))
	return a.Share + math.Max(0, math.Min(1, f))*(b.Share-a.Share)
}
