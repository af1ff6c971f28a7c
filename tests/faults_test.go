package tests

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"monotron/internal/drawn"
	"monotron/mpu/health"
)

// trouble is a fault, and what the verdict on it must say.
type trouble struct {
	inject string // without rank, step and phase
	kind   string
	codes  [2]int // of processes, of goroutines; 0: not there
	phases string // where it can happen; "": everywhere
}

var troubles = []trouble{
	{"kill", "death", [2]int{137, 137}, ""},
	{"exit:code=9", "death", [2]int{9, 9}, ""},
	{"sleep", "stall", [2]int{70, 70}, ""},
	{"stop", "silence", [2]int{74, 0}, "data save"},
	{"mismatch", "mismatch", [2]int{70, 70}, ""},
	{"mismatch:what=order", "mismatch", [2]int{70, 70}, ""},
	{"nan:layer=1", "non-finite", [2]int{70, 70}, "forward"},
	{"diskfull", "error", [2]int{74, 74}, "save"},
}

var allPhases = []string{"startup", "data", "forward", "backward", "reduce", "optimizer", "save", "eval"}

// cell is one entry of the fault table.
type cell struct {
	trouble
	phase     string
	processes bool
}

// faultTable is every injection in every phase, in processes and in goroutines.
func faultTable() (cells []cell) {
	for _, f := range troubles {
		for _, phase := range allPhases {
			if f.phases != "" && !strings.Contains(f.phases, phase) {
				continue
			}
			cells = append(cells, cell{f, phase, true})
			if f.codes[1] != 0 {
				cells = append(cells, cell{f, phase, false})
			}
		}
	}
	return cells
}

// TestFaultTable (docs/failures.md): every injection x phase: the verdict names the
// right rank and cause, in time; the exit code says it; no process is left behind.
// FAULTS=all does the complete table and prints it, FAULTS=eval the rows with that word;
// else it is a few cells, drawn by SEED.
func TestFaultTable(t *testing.T) { table(t, program(t), false) }

// TestFaultTableReworded (docs/failures.md): the same with a program all of whose messages
// are scrambled: no code reads another's text. FAULTS and SEED as above.
func TestFaultTableReworded(t *testing.T) {
	if testing.Short() {
		t.Skip("not with -short")
	}
	bin := t.TempDir()
	cmd := exec.Command("go", "build", "-tags", "reworded", "-o", filepath.Join(bin, "monotron"), ".")
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	cmd = exec.Command(filepath.Join(bin, "monotron"), "pretrain_gpt", "--no-such-flag")
	if out, _ := cmd.CombinedOutput(); cmd.ProcessState.ExitCode() != 2 || !strings.HasPrefix(string(out), "monotron: ") || strings.Contains(string(out), "no-such-flag") {
		t.Fatalf("code %d, and its messages are not scrambled: %s", cmd.ProcessState.ExitCode(), out)
	}
	table(t, bin, true)
}

// table tries the cells that the environment asks for; reworded: the program's messages
// mean nothing.
func table(t *testing.T, bin string, reworded bool) {
	cells, all := faultTable(), os.Getenv("FAULTS") != ""
	if word := os.Getenv("FAULTS"); word != "all" {
		cells = slices.DeleteFunc(cells, func(c cell) bool { return !strings.Contains(c.inject+" "+c.phase, word) })
	}
	if !all {
		some := 7
		if testing.Short() || reworded { // that one's build takes its time
			some = 3
		}
		cells = drawn.Some(t, cells, some)
		t.Log("FAULTS=all does all")
	}
	l, limit := newLaunching(t, bin), slow
	if all {
		limit = 30 * time.Second // what docs/failures.md promises, on a machine that does nothing else
		fmt.Printf("%-22s %-10s %-11s %-11s %5s %5s %9s %9s\n", "fault", "phase", "ranks are", "verdict", "rank", "code", "from hit", "whole run")
	}
	for i, c := range cells {
		t.Run(fmt.Sprintf("%s in %s, %s", c.inject, c.phase, c.where()), func(t *testing.T) {
			if !all {
				t.Parallel() // ranks wait more than they compute
			}
			line, err := c.try(l, i, limit, reworded)
			if all {
				fmt.Println(line)
			}
			if err != nil {
				t.Errorf("%s\n%v", line, err)
			}
		})
	}
}

// where says what the ranks are.
func (c *cell) where() string {
	if c.processes {
		return "processes"
	}
	return "goroutines"
}

// try runs one cell. The seconds are those from the moment at which the fault hits to
// the end of everything, where the record of the victim's process has it, and those of
// the complete run.
func (c *cell) try(l *launching, number int, limit time.Duration, reworded bool) (line string, err error) {
	const victim = 3
	folder := filepath.Join(l.dir, fmt.Sprintf("run%d", number))
	step := map[string]int{"startup": 0, "save": 4, "eval": 4}[c.phase]
	if step == 0 && c.phase != "startup" {
		step = 3
	}
	name, rest, _ := strings.Cut(c.inject, ":")
	fault := fmt.Sprintf("%s:rank=%d:step=%d:phase=%s", name, victim, step, c.phase)
	if rest != "" {
		fault += ":" + rest
	}
	start, code := "pretrain_gpt --world-size 8 ", c.codes[1]
	if c.processes {
		start, code = "launch --nproc-per-node 8 -- pretrain_gpt ", c.codes[0]
	}
	cmd, notes := l.command(start + eight + fmt.Sprintf("--train-iters 8 --save ck%d --save-interval 4 --stall-seconds 4 --run-folder %s --inject %s", number, folder, fault))
	begin := time.Now()
	_ = cmd.Run() // its code says it
	end, hit := time.Now(), begin
	var v struct {
		Kind, Text, Phase string
		Rank              int
	}
	text, read := os.ReadFile(filepath.Join(folder, "verdict.json"))
	if read == nil {
		read = json.Unmarshal(text, &v)
	}
	if f, err := health.ReadFlight(health.FlightFile(folder, victim)); err == nil && c.processes && (v.Kind == "death" || v.Kind == "stall" || v.Kind == "silence") && f.Since.After(begin) {
		hit = f.Since // faults hit where a phase begins
	}
	took := end.Sub(hit)
	got := cmd.ProcessState.ExitCode()
	line = fmt.Sprintf("%-22s %-10s %-11s %-11s %5d %5d %9.1f %9.1f", c.inject, c.phase, c.where(), v.Kind, v.Rank, got, took.Seconds(), end.Sub(begin).Seconds())
	last := strings.TrimSpace(notes.String())
	last = last[strings.LastIndex(last, "\n")+1:]
	switch {
	case read != nil:
		return line, fmt.Errorf("no verdict: %v; %s", read, last)
	case v.Kind != c.kind || v.Rank != victim || got != code:
		return line, fmt.Errorf("want a verdict of %s on rank %d and code %d; %s", c.kind, victim, code, notes)
	case (c.kind == "death" || c.kind == "stall") && v.Phase != c.phase:
		return line, fmt.Errorf("it was in %s, not %s; %s", c.phase, v.Phase, last)
	case !strings.HasPrefix(last, "monotron: ") || (!reworded && !strings.Contains(last, "rank 3")) || strings.Count(notes.String(), "monotron: ") != 1:
		return line, fmt.Errorf("the last line is not the one verdict: %s", notes)
	case took > limit:
		return line, fmt.Errorf("it took %v from the fault to the end", took)
	}
	return line, leftBehind(folder)
}

// leftBehind finds processes that name a folder.
func leftBehind(folder string) error {
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		left := ""
		lists, err := filepath.Glob("/proc/[0-9]*/cmdline")
		if err != nil {
			return err
		}
		for _, path := range lists {
			if text, err := os.ReadFile(path); err == nil && strings.Contains(string(text), folder) {
				left = path
			}
		}
		if left == "" {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s is left behind", left)
		}
	}
}

// Claim (docs/failures.md): a step that is not finite is kept and runs again alone, to
// the same position; the records of the dead run join to a time line and a trace.
func replayAndPostmortem(l *launching) {
	t := l.t
	cmd, notes := l.command("launch --nproc-per-node 8 --run-folder rf -- pretrain_gpt " + eight + "--train-iters 5 --inject nan:rank=6:step=3:layer=3")
	_ = cmd.Run() // its code says it
	const where = "the output of layer 2 on rank 6, micro-batch 0"
	if code := cmd.ProcessState.ExitCode(); code != 70 || !strings.Contains(notes.String(), where) || !strings.Contains(notes.String(), "monotron replay") {
		t.Fatalf("code %d: %s", code, notes)
	}
	out, err := exec.Command(filepath.Join(l.bin, "monotron"), "replay", filepath.Join(l.dir, "rf", "nonfinite_0000003")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), where) || !strings.Contains(string(out), "not finite 1 of") {
		t.Errorf("replay: %v: %s", err, out)
	}
	out, err = exec.Command(filepath.Join(l.bin, "monotron"), "postmortem", filepath.Join(l.dir, "rf"), "--last", "0", "--trace", filepath.Join(l.dir, "t.json")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "verdict (non-finite)") || strings.Count(string(out), " calls, the last ") != 8 || !strings.Contains(string(out), "megatron/model/") {
		t.Errorf("postmortem: %v: %s", err, out)
	}
	var events []map[string]any
	if err := json.Unmarshal([]byte(l.read("t.json")), &events); err != nil || len(events) < 100 {
		t.Errorf("%d events, %v", len(events), err)
	}
}

// Claim (docs/failures.md): a checkpoint with a byte changed is not trusted: the run
// continues from the one before it.
func corruptedCheckpoint(l *launching) {
	t := l.t
	line := eight + "--world-size 8 --save ck --load ck --save-interval 2 "
	l.must("pretrain_gpt " + line + "--train-iters 8 --exit-interval 4 --inject corrupt:rank=2:step=4")
	cmd, notes := l.command("pretrain_gpt " + line + "--train-iters 8 --log-jsonl on.jsonl")
	if err := cmd.Run(); err != nil || !strings.Contains(notes.String(), "iteration 2 is used instead") {
		t.Fatalf("%v: %s", err, notes)
	}
	l.must("pretrain_gpt " + eight + "--world-size 8 --train-iters 8 --log-jsonl whole.jsonl")
	if rest, full := l.numbers("on.jsonl"), l.numbers("whole.jsonl"); rest == "" || !strings.HasSuffix(full, rest) {
		t.Errorf("it went on with\n%s\nwant the end of\n%s", rest, full)
	}
}

// Claim (docs/failures.md): a rank behind a slow network, and one that works slowly,
// are named by the straggler line; the run continues.
func stragglers(l *launching) {
	t := l.t
	cmd, notes := l.command("launch --nproc-per-node 4 -- pretrain_gpt " + eight + "--train-iters 8 --log-straggler --log-interval 2 --log-jsonl slow.jsonl --inject sleep:rank=1:phase=data:seconds=0.4,slow:rank=2:ms=5")
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, notes)
	}
	text := notes.String()
	if !strings.Contains(text, "stragglers at step") || !strings.Contains(text, "data: rank 1, 4") || !strings.Contains(text, "forward: rank 2") {
		t.Error(text)
	}
	lines := slices.DeleteFunc(strings.Split(l.read("slow.jsonl"), "\n"), func(line string) bool { return !strings.Contains(line, `"rank_seconds"`) })
	var entry struct {
		Others []float64 `json:"straggler_scores"`
		Past   []float64 `json:"straggler_own_scores"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &entry); err != nil || len(entry.Others) != 4 || len(entry.Past) != 4 || entry.Others[1] >= entry.Others[0] || entry.Others[0] != 1 {
		t.Errorf("%v: scores %+v", err, entry) // rank 0 is in the stage of rank 1
	}
}

// Claim (docs/failures.md): where a rank fails again and again, --auto-restart continues
// with fewer ranks, from the last good checkpoint.
func shrinks(l *launching) {
	t := l.t
	cmd, notes := l.command("launch --nproc-per-node 8 --auto-restart --max-restarts 1 --min-nproc-per-node 4 -- pretrain_gpt " + eight +
		"--train-iters 6 --save ck --save-interval 2 --log-jsonl some.jsonl --inject kill:rank=7:step=4")
	if err := cmd.Run(); err != nil || !strings.Contains(notes.String(), "continuing with 4 ranks") {
		t.Fatalf("%v: %s", err, notes)
	}
	if got := l.numbers("some.jsonl"); !strings.Contains(got, `"iteration":6`) {
		t.Error(got)
	}
	for _, path := range []string{"ck/iter_0000006/rank_00003.safetensors", "ck/latest_checkpointed_iteration.txt"} {
		if l.read(path) == "" {
			t.Errorf("%s is missing", path)
		}
	}
}
