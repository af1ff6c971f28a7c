package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"monotron/internal/drawn"
	"monotron/mpu/comm/failure"
	"monotron/mpu/health"
)

// eight is a small model on TP2 x PP2 x DP2.
const eight = "--num-layers 4 --hidden-size 32 --num-attention-heads 4 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 1 " +
	"--global-batch-size 8 --lr 1e-2 --log-interval 1 --eval-interval 4 --eval-iters 2 --device ref --vocab-size 50 " +
	"--make-vocab-size-divisible-by 2 --tokenizer-type NullTokenizer --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 " +
	"--use-distributed-optimizer --split 8,1,1 --data-path text_text_document "

// steady leaves out what differs between data-parallel sizes: the positions of dropout.
const steady = "--hidden-dropout 0 --attention-dropout 0 "

// paused is a run of 12 steps that stands still for a while in the eighth, for what is to
// happen in the middle of it.
const paused = "--train-iters 12 --inject sleep:rank=1:step=8:phase=data:seconds=1.5 "

// TestLaunch builds the program once for all that starts processes.
func TestLaunch(t *testing.T) {
	bin := program(t)
	tests := map[string]func(*launching){
		"processes equal goroutines":          processesEqualGoroutines,
		"a killed rank is named":              killedRankIsNamed,
		"a signal to one rank":                signalToOneRank,
		"a killed launcher leaves nothing":    killedLauncherLeavesNothing,
		"nobody reads any more":               nobodyReads,
		"a log that cannot be written":        logCannotBeWritten,
		"all ranks stopped":                   allStopped,
		"restarts":                            restarts,
		"a crash loop":                        crashLoop,
		"a mistake in the flags is told once": mistakeIsReportedOnce,
		"replay and postmortem":               replayAndPostmortem,
		"a NaN among experts":                 nanAmongExperts,
		"skipped at the least loss scale":     skippedAtTheLeastScale,
		"experts beside the shared one":       expertsDuringShared,
		"a corrupted checkpoint":              corruptedCheckpoint,
		"stragglers":                          stragglers,
		"fewer ranks":                         shrinks,
		"fewer hosts":                         continuesWithoutHost,
		"too few hosts":                       cannotContinueWithoutHost,
		"hosts start again together":          hostsStartAgainTogether,
		"attacked":                            attacked,
		"a signal in any phase":               signalInAnyPhase,
	}
	for _, name := range drawn.Part(t, slices.Sorted(maps.Keys(tests)), (len(tests)+1)/2) {
		t.Run(name, func(t *testing.T) {
			if long[name] && testing.Short() {
				t.Skip("not with -short")
			}
			tests[name](newLaunching(t, bin))
		})
	}
}

// long are the tests that -short leaves out.
var long = map[string]bool{"attacked": true, "all ranks stopped": true, "a signal in any phase": true, "stragglers": true, "fewer ranks": true, "fewer hosts": true, "too few hosts": true,
	"hosts start again together": true}

// slow is how long a test waits for what takes a second or two: its machine may be busy.
const slow = 5 * time.Minute

// launching is a folder with a data set and the program.
type launching struct {
	t        *testing.T
	bin, dir string
	perHost  int   // ranks of a host in nodes; 0: 4
	hostWait int   // --host-wait-seconds in nodes; 0: 3
	daemons  []int // processes of the sshd of each host
}

// each runs tests one after another, each with a copy of l whose t is its own.
func (l *launching) each(tests map[string]func(*launching)) {
	t := l.t
	t.Helper()
	for _, name := range drawn.Part(t, slices.Sorted(maps.Keys(tests)), (len(tests)+1)/2) {
		t.Run(name, func(t *testing.T) {
			own := *l
			own.t = t
			tests[name](&own)
		})
	}
}

func newLaunching(t *testing.T, bin string) *launching {
	t.Helper()
	l := &launching{t: t, bin: bin, dir: t.TempDir()}
	var text strings.Builder
	for document := range 40 {
		text.WriteString(`{"text":"`)
		for token := range 90 {
			if token > 0 {
				text.WriteByte(' ')
			}
			fmt.Fprintf(&text, "%d", (document*document+token*7+token*token*document)%50)
		}
		text.WriteString("\"}\n")
	}
	if err := os.WriteFile(filepath.Join(l.dir, "text.jsonl"), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	l.must("preprocess_data --input text.jsonl --output-prefix text --tokenizer-type NullTokenizer --vocab-size 50 --workers 1")
	return l
}

// command is monotron with the words of line.
func (l *launching) command(line string) (cmd *exec.Cmd, notes *bytes.Buffer) {
	cmd = exec.Command(filepath.Join(l.bin, "monotron"), strings.Fields(line)...)
	notes = &bytes.Buffer{}
	cmd.Dir, cmd.Stderr = l.dir, notes
	return cmd, notes
}

func (l *launching) must(line string) {
	l.t.Helper()
	if cmd, notes := l.command(line); cmd.Run() != nil {
		l.t.Fatalf("%s: %s\n%s", line, cmd.ProcessState, notes)
	}
}

// read is a file of the folder; "" where it does not exist yet.
func (l *launching) read(name string) string {
	text, err := os.ReadFile(filepath.Join(l.dir, name))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		l.t.Fatal(err)
	}
	return string(text)
}

var numbersOf = regexp.MustCompile(`"(iteration|lm loss|grad_norm)":[^,}]*`)

func (l *launching) numbers(name string) string {
	return strings.Join(numbersOf.FindAllString(l.read(name), -1), "\n")
}

// start starts a run and waits until it has logged so many lines.
func (l *launching) start(line, log string, lines int) (cmd *exec.Cmd, notes *bytes.Buffer) {
	l.t.Helper()
	cmd, notes = l.command(line)
	if err := cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	l.await(log, lines, cmd, notes)
	return cmd, notes
}

// await waits until a run has logged so many lines.
func (l *launching) await(log string, lines int, cmd *exec.Cmd, notes *bytes.Buffer) {
	l.t.Helper()
	for end := time.Now().Add(slow); strings.Count(l.read(log), "\n") < lines; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			l.t.Fatalf("%s logged nothing: %s", cmd, notes)
		}
	}
}

// inPhase waits until a rank sleeps in a phase, as its flight record says, and gives
// all ranks' processes.
func (l *launching) inPhase(launcher int, folder string, rank int, phase string) map[int]int {
	l.t.Helper()
	for end := time.Now().Add(slow); ; time.Sleep(20 * time.Millisecond) {
		f, err := health.ReadFlight(health.FlightFile(filepath.Join(l.dir, folder), rank))
		if err == nil && strings.HasPrefix(f.Phase, phase) && time.Since(f.Since) > 200*time.Millisecond {
			return ranksOf(l.t, launcher)
		}
		if time.Now().After(end) {
			l.t.Fatalf("rank %d never came to %s: %v", rank, phase, err)
		}
	}
}

// ranks are the processes that the launcher has started, by rank.
func ranksOf(t *testing.T, launcher int) map[int]int {
	t.Helper()
	pids := map[int]int{}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", launcher))
	if err != nil || len(lists) == 0 {
		t.Skip("this system does not list a process's children")
	}
	for _, list := range lists {
		children, err := os.ReadFile(list)
		if err != nil {
			continue // a thread that has ended
		}
		for _, child := range strings.Fields(string(children)) {
			environment, err := os.ReadFile("/proc/" + child + "/environ")
			if err != nil {
				continue
			}
			for _, entry := range strings.Split(string(environment), "\x00") {
				if rank, ok := strings.CutPrefix(entry, "RANK="); ok {
					r, _ := strconv.Atoi(rank)
					pids[r], _ = strconv.Atoi(child)
				}
			}
		}
	}
	return pids
}

// gone waits until none of the processes runs.
func gone(t *testing.T, pids map[int]int) {
	t.Helper()
	for rank, pid := range pids {
		for end := time.Now().Add(slow); syscall.Kill(pid, 0) == nil; time.Sleep(20 * time.Millisecond) {
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err != nil || strings.Contains(string(text), ") Z ") {
				break // nobody has asked for its exit code yet
			}
			if time.Now().After(end) {
				t.Fatalf("rank %d is left behind as process %d", rank, pid)
			}
		}
	}
}

// Claim (docs/launch.md): TP2 x PP2 x DP2 as 8 processes gives the losses,
// gradient norms and weights of 8 ranks in one process, bit for bit.
func processesEqualGoroutines(l *launching) {
	t := l.t
	l.must("pretrain_gpt " + eight + "--train-iters 6 --world-size 8 --log-jsonl one.jsonl --save one --save-interval 6")
	l.must("launch --nproc-per-node 8 -- pretrain_gpt " + eight + "--train-iters 6 --log-jsonl many.jsonl --save many --save-interval 6")
	want, got := l.numbers("one.jsonl"), l.numbers("many.jsonl")
	if want != got || strings.Count(want, "grad_norm") < 6 {
		t.Errorf("in one process\n%s\nin eight\n%s", want, got)
	}
	for rank := range 8 {
		file := fmt.Sprintf("iter_0000006/rank_%05d.safetensors", rank)
		if a, b := l.read("one/"+file), l.read("many/"+file); a == "" || a != b {
			t.Errorf("%s: %d bytes and %d bytes, which differ", file, len(a), len(b))
		}
	}
}

// Claim (docs/failures.md): a rank that is killed is named in the last line,
// with what it was at; the exit code says the signal; nothing is left behind.
func killedRankIsNamed(l *launching) {
	t := l.t
	for _, victim := range []int{5, 0, 7} {
		log, result := fmt.Sprintf("killed%d.jsonl", victim), fmt.Sprintf("killed%d.json", victim)
		cmd, notes := l.start("launch --nproc-per-node 8 -- pretrain_gpt "+eight+"--train-iters 20000 --result-json "+result+" --log-jsonl "+log, log, 3)
		pids := ranksOf(t, cmd.Process.Pid)
		if len(pids) != 8 {
			t.Errorf("there are %d ranks", len(pids))
		}
		time.Sleep(2500 * time.Millisecond) // a beat a second says what a rank does
		start := time.Now()
		if err := syscall.Kill(pids[victim], syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // its code says it
		t.Logf("over after %v", time.Since(start))
		text := strings.TrimSpace(notes.String())
		last := text[strings.LastIndex(text, "\n")+1:]
		want := fmt.Sprintf("monotron: rank %d (process %d) was ended by signal 9 (killed)", victim, pids[victim])
		if code := cmd.ProcessState.ExitCode(); code != 137 || !strings.HasPrefix(last, want) || strings.Count(text, "monotron: ") != 1 {
			t.Errorf("rank %d killed: code %d, last line %q of\n%s", victim, code, last, text)
		}
		// The file of the result has the launcher's verdict, whichever rank was killed (docs/automation.md).
		var outcome struct {
			Code      int    `json:"exit_code"`
			Reason    string `json:"exit_reason"`
			Message   string `json:"message"`
			Iteration int    `json:"iteration"`
		}
		if err := json.Unmarshal([]byte(l.read(result)), &outcome); err != nil || outcome.Code != 137 || outcome.Reason != "signal" || "monotron: "+outcome.Message != last || outcome.Iteration < 3 {
			t.Errorf("rank %d killed: %v, %+v", victim, err, outcome)
		}
		if victim != 0 && !strings.Contains(last, " in ") {
			t.Errorf("what it was at is missing: %s", last)
		}
		gone(t, pids)
	}
}

// Claim (docs/failures.md): SIGTERM to one rank of eight ends all after the step,
// saved, with 75; the same command continues from there to the same numbers.
func signalToOneRank(l *launching) {
	t := l.t
	line := "launch --nproc-per-node 8 -- pretrain_gpt " + eight + "--train-iters 60 --save ck --load ck --save-interval 1000 --log-jsonl "
	cmd, notes := l.start(line+"stopped.jsonl", "stopped.jsonl", 3)
	pids := ranksOf(t, cmd.Process.Pid)
	if err := syscall.Kill(pids[3], syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its code says it
	if code := cmd.ProcessState.ExitCode(); code != 75 {
		t.Fatalf("code %d: %s", code, notes)
	}
	gone(t, pids)
	l.must(line + "continued.jsonl")
	l.must("pretrain_gpt " + eight + "--train-iters 60 --world-size 8 --log-jsonl whole.jsonl")
	full := l.numbers("whole.jsonl")
	if rest := l.numbers("continued.jsonl"); rest == "" || !strings.HasSuffix(full, rest) {
		t.Errorf("it went on with\n%s\nwant the end of\n%s", rest, full)
	}
}

// Claim (docs/failures.md): a run whose output nobody reads any more, as behind
// `| head`, is not lost: it saves after its step and ends with 75.
func nobodyReads(l *launching) {
	t := l.t
	for name, start := range map[string]string{"alone": "pretrain_gpt --world-size 8 ", "launched": "launch --nproc-per-node 8 -- pretrain_gpt "} {
		cmd, notes := l.command(start + eight + "--train-iters 20000 --save " + name + " --save-interval 100000")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for lines := bufio.NewScanner(out); lines.Scan() && !strings.Contains(lines.Text(), "lm loss"); {
		}
		out.Close()    // in the middle of it
		_ = cmd.Wait() // its code says it
		if code := cmd.ProcessState.ExitCode(); code != 75 || l.read(name+"/latest_checkpointed_iteration.txt") == "" || !strings.Contains(notes.String(), "by closed standard output") {
			t.Errorf("%s: code %d: %s", name, code, notes)
		}
	}
}

// Claim (docs/launch.md, docs/exit-codes.md): a run whose log cannot be written saves and
// ends with 74, launched or alone.
func logCannotBeWritten(l *launching) {
	t := l.t
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close() // nothing is in it
	two := strings.Replace(eight, "--pipeline-model-parallel-size 2", "", 1)
	for _, start := range []string{"pretrain_gpt --world-size 2 ", "launch --nproc-per-node 2 --max-restarts 1 -- pretrain_gpt "} {
		cmd, notes := l.command(start + two + "--train-iters 20000")
		cmd.Stdout = full
		_ = cmd.Run() // its code says it
		if code := cmd.ProcessState.ExitCode(); code != 74 || !strings.Contains(notes.String(), "no space left") || strings.Contains(notes.String(), "restarting") {
			t.Errorf("%s: code %d: %s", start, code, notes)
		}
	}
}

// Claim (docs/failures.md): where no rank can say that ranks are stopped, for all are, the
// launcher does.
func allStopped(l *launching) {
	t := l.t
	cmd, notes := l.start("launch --nproc-per-node 4 --run-folder stopped -- pretrain_gpt "+eight+"--train-iters 20000 --log-jsonl stopped.jsonl", "stopped.jsonl", 2)
	pids, start := ranksOf(t, cmd.Process.Pid), time.Now()
	for _, pid := range pids {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Error(err)
		}
	}
	_ = cmd.Wait() // its code says it
	t.Logf("over after %v", time.Since(start))
	v, err := failure.Read(filepath.Join(l.dir, "stopped"))
	if code := cmd.ProcessState.ExitCode(); code != 74 || err != nil || v.Kind != failure.Silence || v.Rank != 0 {
		t.Errorf("code %d, %+v, %v: %s", code, v, err, notes)
	}
	gone(t, pids)
}

// Claim (docs/launch.md): when the launcher itself is killed, its ranks end.
func killedLauncherLeavesNothing(l *launching) {
	t := l.t
	cmd, _ := l.start("launch --nproc-per-node 2 -- pretrain_gpt "+strings.Replace(eight, "--pipeline-model-parallel-size 2", "", 1)+"--train-iters 20000 --log-jsonl x.jsonl", "x.jsonl", 1)
	pids := ranksOf(t, cmd.Process.Pid)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if len(pids) != 2 {
		t.Errorf("there are %d ranks", len(pids))
	}
	gone(t, pids)
}

// Claim (docs/launch.md): with --max-restarts a run that has lost a rank to a crash continues
// by itself from its checkpoint, to the numbers of one that was not disturbed; what it was
// ordered to load counts for its first start. (That a killed one does is a long proof.)
func restarts(l *launching) {
	t := l.t
	l.must("pretrain_gpt " + eight + "--train-iters 2 --world-size 8 --save first")
	flags := eight + "--train-iters 40 --save-interval 2 --load first --finetune "
	cmd, notes := l.start("launch --nproc-per-node 8 --max-restarts 2 -- pretrain_gpt "+flags+"--save a --log-jsonl a.jsonl", "a.jsonl", 5)
	if err := syscall.Kill(ranksOf(t, cmd.Process.Pid)[6], syscall.SIGSEGV); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(notes.String(), "restarting") {
		t.Fatalf("%v: %s", err, notes)
	}
	l.must("pretrain_gpt " + flags + "--world-size 8 --save b --log-jsonl b.jsonl")
	for rank := range 8 {
		file := fmt.Sprintf("iter_0000040/rank_%05d.safetensors", rank)
		if a, b := l.read("a/"+file), l.read("b/"+file); a == "" || a != b {
			t.Errorf("%s differs", file)
		}
	}
}

// Claim (docs/failures.md): starts that get no further end in a verdict with their number and step.
func crashLoop(l *launching) {
	t := l.t
	cmd, notes := l.command("launch --nproc-per-node 8 --auto-restart --max-restarts 2 --run-folder loop -- pretrain_gpt " + eight + "--train-iters 12 --save ck --save-interval 2 --inject exit:rank=1:step=5:code=3")
	_ = cmd.Run() // its code says it
	v, err := failure.Read(filepath.Join(l.dir, "loop"))
	if err != nil || v.Starts != 3 || v.Step != 5 || v.Rank != 1 {
		t.Errorf("%v: verdict %+v", err, v)
	}
	if code, want := cmd.ProcessState.ExitCode(), "(the run is not restarted again: the last 3 starts did not pass iteration 4 and ended in step 5)"; code != 3 || strings.Count(notes.String(), want) != 1 {
		t.Errorf("code %d: %s", code, notes)
	}
}

// Claim: one mistake in the flags is reported once, whatever the number of ranks.
func mistakeIsReportedOnce(l *launching) {
	t := l.t
	for flag, want := range map[string]string{"--hidden-dropout 3": "must be at least 0 and below 1", "--sample-prompt zzz": "--sample-prompt"} {
		cmd, notes := l.command("launch --nproc-per-node 4 -- pretrain_gpt " + eight + "--train-iters 3 " + flag)
		temporary := t.TempDir()
		cmd.Env = append(os.Environ(), "TMPDIR="+temporary)
		_ = cmd.Run() // its code says it
		if code := cmd.ProcessState.ExitCode(); code != 2 || strings.Count(notes.String(), want) != 1 {
			t.Errorf("code %d: %s", code, notes)
		}
		if left, err := filepath.Glob(filepath.Join(temporary, "monotron-run-*")); err != nil || len(left) > 0 {
			t.Errorf("%s leaves flight records: %v, %v", flag, left, err)
		}
	}
}
