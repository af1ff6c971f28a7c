package measure

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"
	"gopkg.in/yaml.v3"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/megatron/plan"
	"monotron/tools/internal/timing"
)

// Claim: what is measured is a machine file that plans can read: ops of training steps at
// every shape alone and by a rank a thread, collectives, the disk; the disk's file is gone.
func TestMeasuredMachine(t *testing.T) {
	tiny := surveyEffort{hidden: []int{64}, batches: [][2]int{{4, 1}, {8, 2}}, most: 1 << 20, cuts: []int{1}, visits: 1, layers: 1, step: time.Nanosecond, groups: []int{2}, bytes: []float64{64, 4096},
		collective: time.Microsecond, cubes: []int64{8, 16}, copies: []int64{1024, 8192}, product: time.Microsecond, disk: 4 << 20}
	s := &survey{open: func() (*device.Device, error) { return ref.Open(), nil }, effort: tiny, folder: t.TempDir()}
	if err := s.one("tiny"); err != nil {
		t.Fatal(err)
	}
	for _, task := range s.tasks() {
		if task.name == "processes" { // starts this program, which here is the test
			continue
		}
		if err := task.do(); err != nil {
			t.Fatalf("%s: %v", task.name, err)
		}
	}
	if err := s.conclude(); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(&s.machine)
	if err != nil {
		t.Fatal(err)
	}
	m, err := plan.ParseMachine(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if left, err := os.ReadDir(s.folder); err != nil || len(left) > 0 {
		t.Errorf("the folder holds %v, %v", left, err)
	}
	seen := map[string]map[int]bool{}
	for _, o := range m.Ops {
		if seen[o.Op] == nil {
			seen[o.Op] = map[int]bool{}
		}
		seen[o.Op][o.Ranks] = true
	}
	for _, op := range []string{"matmul", "attention_forward", "attention_backward", "norm_forward", "adamw", "embedding_forward"} {
		if !seen[op][1] || !seen[op][m.Threads] {
			t.Errorf("%s was timed by %v ranks; ops are %v", op, seen[op], len(seen))
		}
	}
	if !seen["matmul"][2*m.Threads] || len(m.Meetings) == 0 {
		t.Errorf("products by %v ranks, meetings %v", seen["matmul"], m.Meetings)
	}
	if m.Disk.Write <= 0 || m.Disk.Read <= 0 || len(m.Collectives) != 20 || m.Launch <= 0 {
		t.Errorf("disk %+v, %d collectives, %g s between ops", m.Disk, len(m.Collectives), m.Launch)
	}
}

// Claim: how far cores are apart is reported, and more of it where that changed; then what was seen while they
// were near counts, and all of it where that is nothing.
func TestCoresApart(t *testing.T) {
	if far := timing.RoundTrip(10, 2); far <= 0 || far > 1 {
		t.Errorf("a word takes %g s there and back", far)
	}
	for want, distances := range map[string][]float64{"": nil, "a message from one core to another and back takes 80 to 99 ns": {99e-9, 80e-9},
		"a message from one core to another and back takes 80 to 400 ns; measurements made while this time was long are left out if others were made while it was short": {80e-9, 400e-9, 90e-9}} {
		if got := (&survey{distances: distances}).summary(); got != want {
			t.Errorf("of %v it says %q", distances, got)
		}
	}
	s := &survey{distances: []float64{80e-9, 400e-9}}
	for want, visits := range map[float64][]visit{2: {{9, 400e-9}, {2, 80e-9}, {1, 90e-9}, {3, 85e-9}}, 9: {{9, 400e-9}, {10, 390e-9}}} {
		o := &opTimes{visits: [][]visit{visits}}
		o.Times = [][]float64{{64, 1, 1, 0}}
		if got := o.conclude(s.near).Times[0][3]; got != want {
			t.Errorf("of %v it tells %g", visits, got)
		}
	}
}

// Claim: a path where no file can be is refused before anything is measured.
func TestMeasureRefuses(t *testing.T) {
	folder := t.TempDir()
	for name, line := range map[string][]string{"no output": nil, "no folder": {"--output", filepath.Join(folder, "none", "x.yaml")}, "a folder": {"--output", folder}, "a word": {"x", "--output", filepath.Join(folder, "x")},
		"threads": {"--cpu-threads", "-1", "--output", filepath.Join(folder, "x")}} {
		app := &cli.App{Name: "monotron", Writer: io.Discard, ErrWriter: io.Discard, ExitErrHandler: func(*cli.Context, error) {},
			Commands: []*cli.Command{Command(func(string) (*device.Device, error) {
				t.Errorf("%s: something is measured", name)
				return ref.Open(), nil
			})}}
		if err := app.Run(append([]string{"monotron", "measure"}, line...)); exitcode.CodeOf(err) != exitcode.Usage && exitcode.CodeOf(err) != exitcode.IO {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, _ := os.ReadDir(folder); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}

// Claim (docs/plan.md): when the limit is over, what has not begun is left out, but for what a plan
// needs; each measurement counts as done once.
func TestMeasuringEnds(t *testing.T) {
	var did []string
	clock, bar := time.Duration(0), 0
	task := func(name string, optional bool) surveyTask {
		return surveyTask{name, optional, func() error {
			did, clock = append(did, name), clock+time.Minute
			return nil
		}}
	}
	tasks := []surveyTask{task("a", false), task("b", true), task("c", true), task("d", true), task("e", false)}
	left, err := carryOut(tasks, 2*time.Minute, func(time.Time) time.Duration { return clock }, func() { bar++ })
	if got := strings.Join(did, " "); err != nil || left != 1 || bar != len(tasks) || got != "a b c e" {
		t.Errorf("%s; %d left out, %d on the bar, %v", got, left, bar, err)
	}
}
