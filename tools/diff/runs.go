package diff

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/megatron/training"
	"monotron/mpu/topology"
	"monotron/tools/internal/command"
)

// runs is what differs between the fingerprints of two runs (--log-fingerprints).
type runs struct {
	A        string            `json:"a"`
	B        string            `json:"b"`
	Equal    bool              `json:"equal"`
	Ranks    int               `json:"ranks"`
	Compared int64             `json:"iterations_compared"` // that both have, up to the first difference
	Flags    map[string][2]any `json:"flags,omitempty"`     // that differ, as given
	First    *difference       `json:"first,omitempty"`
}

// difference is the first tensor that differs.
type difference struct {
	Iteration int64             `json:"iteration"`
	Rank      int               `json:"rank"`
	A         *training.Print   `json:"a,omitempty"` // nil: this run has no more of the iteration
	B         *training.Print   `json:"b,omitempty"`
	Different map[string][2]int `json:"different"` // by phase: fingerprints of the rank and iteration that differ, and all
}

// isRun reports whether path is a folder of fingerprints.
func isRun(path string) bool {
	_, err := os.Stat(training.PrintsOf(path, 0))
	return err == nil
}

// diffRuns compares two folders of fingerprints.
func diffRuns(c *cli.Context, a, b string) error {
	r, err := compareRuns(a, b)
	if err != nil {
		return err
	}
	p := &command.Printer{W: c.App.Writer}
	if c.Bool("json") {
		p.JSON(r)
	} else {
		r.print(p)
	}
	if p.Err != nil {
		return exitcode.With(exitcode.IO, p.Err)
	}
	if !r.Equal {
		return exitcode.Errorf(exitcode.Differs, "%s and %s differ", a, b)
	}
	return nil
}

func compareRuns(a, b string) (*runs, error) {
	r := &runs{A: a, B: b}
	x, err := openPrints(a, 0)
	if err != nil {
		return nil, err
	}
	defer x.file.Close()
	y, err := openPrints(b, 0)
	if err != nil {
		return nil, err
	}
	defer y.file.Close()
	if x.header.Layout != y.header.Layout {
		return nil, exitcode.Errorf(exitcode.Usage, "%s has layout %s, but %s has layout %s, so their ranks compute different parts of the model; compare runs of the same layout, or compare checkpoints", a, sizes(x.header.Layout), b, sizes(y.header.Layout))
	}
	r.Ranks, r.Flags = x.header.Layout.World(), changedFlags(x.header.Flags, y.header.Flags)
	for rank := range r.Ranks {
		if err := r.rank(rank); err != nil {
			return nil, err
		}
	}
	r.Equal = r.First == nil
	return r, nil
}

// rank compares one rank's files, up to the first difference that is known.
func (r *runs) rank(rank int) error {
	// The files of this rank, and the iterations that both have.
	x, err := openPrints(r.A, rank)
	if err != nil {
		return err
	}
	defer x.file.Close()
	y, err := openPrints(r.B, rank)
	if err != nil {
		return err
	}
	defer y.file.Close()
	both := slices.DeleteFunc(slices.Sorted(maps.Keys(x.at)), func(n int64) bool { _, has := y.at[n]; return !has })
	if len(both) == 0 {
		return exitcode.Errorf(exitcode.BadData, "%s and %s have no iteration in common", x.path, y.path)
	}
	compared := int64(0)
	// Not beyond what another rank has found.
	for _, n := range both {
		if r.First != nil && n > r.First.Iteration {
			break
		}
		one, err := x.read(n)
		if err != nil {
			return err
		}
		other, err := y.read(n)
		if err != nil {
			return err
		}
		compared++
		if d := firstOf(one, other); d != nil {
			d.Iteration, d.Rank = n, rank
			if r.First == nil || d.before(r.First) {
				r.First = d
			}
			break
		}
	}
	if rank == 0 || compared < r.Compared {
		r.Compared = compared
	}
	return nil
}

// printsFile is a rank's file with the offsets of its iterations; of an iteration that a
// resumed run computed again the later line counts.
type printsFile struct {
	path   string
	file   *os.File
	header training.Header
	at     map[int64][2]int64 // iteration: offset and length
}

func openPrints(folder string, rank int) (*printsFile, error) {
	f := &printsFile{path: training.PrintsOf(folder, rank), at: map[int64][2]int64{}}
	var err error
	if f.file, err = exitcode.Open(f.path); err != nil {
		return nil, exitcode.Errorf(exitcode.NoInput, "%w; give two folders that --log-fingerprints wrote", err)
	}
	if err = f.index(rank); err != nil {
		_ = f.file.Close() // only read
		return nil, err
	}
	return f, nil
}

func (f *printsFile) index(rank int) error {
	in, at := bufio.NewReaderSize(f.file, 1<<20), int64(0)
	for number := 1; ; number++ {
		line, err := in.ReadBytes('\n')
		if err == io.EOF { // what a killed run has not ended is left out
			break
		}
		if err != nil {
			return exitcode.Errorf(exitcode.IO, "%s: %w", f.path, err)
		}
		var step struct {
			Iteration int64            `json:"iteration"`
			Header    *training.Header `json:"header"`
		}
		if err := json.Unmarshal(line, &step); err != nil {
			return exitcode.Errorf(exitcode.BadData, "%s, line %d: %w; the file is damaged", f.path, number, err)
		}
		if step.Header != nil {
			f.header = *step.Header
		} else {
			f.at[step.Iteration] = [2]int64{at, int64(len(line))}
		}
		at += int64(len(line))
	}
	if world := f.header.Layout.World(); f.header.Rank != rank || world <= rank {
		return exitcode.Errorf(exitcode.BadData, "%s: the header of rank %d is missing; the file is damaged or belongs to another rank", f.path, rank)
	}
	return nil
}

func (f *printsFile) read(iteration int64) ([]training.Print, error) {
	position := f.at[iteration]
	line := make([]byte, position[1])
	if _, err := f.file.ReadAt(line, position[0]); err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "%s: %w", f.path, err)
	}
	var step training.Fingerprints
	if err := json.Unmarshal(line, &step); err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s, byte %d: %w; the file is damaged", f.path, position[0], err)
	}
	return step.Prints, nil
}

// firstOf is the first difference of a rank's step; nil: there is none.
func firstOf(a, b []training.Print) *difference {
	d := &difference{Different: map[string][2]int{}}
	for i := range max(len(a), len(b)) {
		var x, y *training.Print
		if i < len(a) {
			x = &a[i]
		}
		if i < len(b) {
			y = &b[i]
		}
		phase := cmp.Or(x, y).Phase
		counts := d.Different[phase]
		counts[1]++
		if x == nil || y == nil || *x != *y {
			counts[0]++
			if d.A == nil && d.B == nil || sooner(cmp.Or(x, y), cmp.Or(d.A, d.B)) {
				d.A, d.B = x, y
			}
		}
		d.Different[phase] = counts
	}
	if d.A == nil && d.B == nil {
		return nil
	}
	return d
}

// before reports whether d comes first in the computation of two ranks.
func (d *difference) before(other *difference) bool {
	if d.Iteration != other.Iteration {
		return d.Iteration < other.Iteration
	}
	return sooner(cmp.Or(d.A, d.B), cmp.Or(other.A, other.B))
}

var phases = []string{training.PrintData, training.PrintForward, training.PrintGradient, training.PrintWeight}

// sooner reports whether x is computed before y: forward from the first layer on, gradients from
// the last layer on.
func sooner(x, y *training.Print) bool {
	order := func(p *training.Print) []int {
		depth := p.Depth
		if p.Phase == training.PrintGradient {
			depth = -layerOf(p.Name)
		}
		return []int{slices.Index(phases, p.Phase), p.Micro, depth}
	}
	return slices.Compare(order(x), order(y)) < 0
}

var layerNumber = regexp.MustCompile(`\blayers\.(\d+)\.`)

// layerOf is the layer that a parameter's name gives; what comes after all layers has a
// large number, and embeddings -1.
func layerOf(name string) int {
	if m := layerNumber.FindStringSubmatch(name); m != nil {
		n, _ := strconv.Atoi(m[1]) // digits alone
		return n
	}
	if strings.Contains(name, "embedding") {
		return -1
	}
	return 1 << 30
}

func sizes(s topology.Sizes) string {
	return fmt.Sprintf("tp %d, cp %d, dp %d, pp %d, ep %d", s.TP, s.CP, s.DP, s.PP, s.EP)
}

// changedFlags are those that the runs were given differently; the folder itself is not a difference.
func changedFlags(a, b map[string][]string) map[string][2]any {
	changed := map[string][2]any{}
	for _, flags := range []map[string][]string{a, b} {
		for name := range flags {
			if !reflect.DeepEqual(a[name], b[name]) && name != "log-fingerprints" {
				changed[name] = [2]any{a[name], b[name]}
			}
		}
	}
	return changed
}

func (r *runs) print(p *command.Printer) {
	p.Printf("A  %s\nB  %s\n", r.A, r.B)
	// Flags that differ explain differences.
	for _, name := range slices.Sorted(maps.Keys(r.Flags)) {
		given := func(v any) string {
			words := v.([]string)
			if words == nil {
				return "not given"
			}
			return strings.Join(words, " ")
		}
		p.Printf("--%s: %s in A, %s in B\n", name, given(r.Flags[name][0]), given(r.Flags[name][1]))
	}
	if r.First == nil {
		p.Printf("%d iterations of %d ranks are equal\n", r.Compared, r.Ranks)
		return
	}
	// Where the first difference is, what both have there, and how much differs in that iteration.
	d := r.First
	at := cmp.Or(d.A, d.B)
	p.Printf("first difference: iteration %d, rank %d, %s", d.Iteration, d.Rank, at.Phase)
	if at.Phase == training.PrintData || at.Phase == training.PrintForward {
		p.Printf(", micro-batch %d", at.Micro)
	}
	p.Printf(": %s\n", at.Name)
	for i, one := range []*training.Print{d.A, d.B} {
		switch {
		case one == nil:
			p.Printf("  %c  has no further fingerprints of this iteration\n", 'A'+i)
		case one.Name != at.Name || one.Phase != at.Phase:
			p.Printf("  %c  has %s, %s there\n", 'A'+i, one.Phase, one.Name)
		default:
			p.Printf("  %c  %s\n", 'A'+i, one.Sum)
		}
	}
	for _, phase := range phases {
		if n := d.Different[phase]; n[1] > 0 {
			p.Printf("  %s: %d of %d differ in this iteration of this rank\n", phase, n[0], n[1])
		}
	}
}
