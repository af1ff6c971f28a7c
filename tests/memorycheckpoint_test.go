package tests

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMemoryCheckpoints starts runs that keep checkpoints in memory, and kills parts of them.
func TestMemoryCheckpoints(t *testing.T) {
	l := newLaunching(t, program(t))
	l.must("pretrain_gpt " + eight + "--train-iters 12 --world-size 8 --save whole --save-interval 6 --log-jsonl whole.jsonl")
	l.each(map[string]func(*launching){
		"a rank is lost":               memoryAfterRank,
		"a host is lost":               memoryAfterHost,
		"a host without copies":        diskAfterHost,
		"where nobody holds memory":    memoryRefused,
		"a plan says what it takes":    memoryPlanned,
		"disk is newer":                diskIsNewer,
		"memory alone counts as steps": memoryIsProgress,
	})
}

// atSix is a run that keeps iterations 3, 6, 9 and 12 in memory and stands still in step 8.
const atSix = eight + paused + "--memory-checkpoint-interval 3 "

// sameEnd checks that a run has ended with the numbers and the bytes of the undisturbed one.
func (l *launching) sameEnd(log, save string) {
	l.t.Helper()
	full, rest := l.numbers("whole.jsonl"), l.numbers(log)
	if tail := full[strings.LastIndex(full[:len(full)*3/4], `"iteration"`):]; !strings.HasSuffix(rest, tail) {
		l.t.Errorf("it went on with\n%s\nwant the end of\n%s", rest, full)
	}
	l.sameCheckpoint(save, 12)
}

// sameCheckpoint compares the files of an iteration with those of the undisturbed run.
func (l *launching) sameCheckpoint(save string, iteration int) {
	l.t.Helper()
	files, err := filepath.Glob(filepath.Join(l.dir, "whole", fmt.Sprintf("iter_%07d", iteration), "rank_*.safetensors"))
	if err != nil || len(files) == 0 {
		l.t.Fatalf("the undisturbed run has no checkpoint of iteration %d: %v", iteration, err)
	}
	for _, path := range files {
		file, _ := filepath.Rel(filepath.Join(l.dir, "whole"), path) // it is below
		if a, b := l.read(save+"/"+file), l.read("whole/"+file); a == "" || a != b {
			l.t.Errorf("%s/%s: %d bytes, and %d of the undisturbed run, differ", save, file, len(a), len(b))
		}
	}
}

// Claim (docs/failures.md): after a rank is killed the run continues from the newest memory
// checkpoint, which is the checkpoint that would be on disk, byte for byte.
func memoryAfterRank(l *launching) {
	cmd, notes := l.start("launch --nproc-per-node 8 --max-restarts 2 -- pretrain_gpt "+atSix+"--save a --save-on-load loaded --log-jsonl a.jsonl", "a.jsonl", 8)
	if err := syscall.Kill(ranksOf(l.t, cmd.Process.Pid)[5], syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(notes.String(), "loaded the memory checkpoint: iteration 6") {
		l.t.Fatalf("%v: %s", err, notes)
	}
	l.sameCheckpoint("loaded", 6)
	l.sameEnd("a.jsonl", "a")
}

// lostHost starts two launchers, kills the second with its ranks, and starts it again.
func (l *launching) lostHost(line, log string, lines int) (notes string) {
	t := l.t
	t.Helper()
	cmds, errs := l.nodes(line + "--log-jsonl " + log)
	l.await(log, lines, cmds[0], errs[0])
	if err := cmds[1].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmds[1].Wait() // it was killed
	again := exec.Command(cmds[1].Path, cmds[1].Args[1:]...)
	again.Dir, again.Env, again.Stderr = cmds[1].Dir, cmds[1].Env, errs[1]
	if err := again.Start(); err != nil {
		t.Fatal(err)
	}
	for _, cmd := range []*exec.Cmd{cmds[0], again} {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%v: %s\n%s", err, errs[0], errs[1])
		}
	}
	return errs[0].String()
}

// Claim (docs/failures.md): with --replication-jump the run continues from memory after a host
// with all its memory is lost and has come back.
func memoryAfterHost(l *launching) {
	notes := l.lostHost(atSix+"--replication-jump 4 --save b ", "b.jsonl", 8)
	for _, want := range []string{"loaded the memory checkpoint: iteration 6", "the shards of ranks [4 5 6 7] were read from copies; the copy of a shard is on the host of the rank whose number is higher by 4", "kept iteration 6 in memory"} {
		if !strings.Contains(notes, want) {
			l.t.Errorf("%q is not in %s", want, notes)
		}
	}
	l.sameEnd("b.jsonl", "b")
}

// Claim (docs/failures.md): where no complete memory checkpoint survives the run continues from
// disk, and says which shards are gone.
func diskAfterHost(l *launching) {
	notes := l.lostHost(atSix+"--save c --save-interval 4 ", "c.jsonl", 8)
	for _, want := range []string{"no complete memory checkpoint: iteration 6 lacks the shards of ranks [4 5 6 7]; the run starts from disk", "c/iter_0000004: iteration 4", "give --replication-jump"} {
		if !strings.Contains(notes, want) {
			l.t.Errorf("%q is not in %s", want, notes)
		}
	}
	l.sameEnd("c.jsonl", "c")
}

// saved waits until the checkpoint of an iteration is the newest.
func (l *launching) saved(save, iteration string) {
	l.t.Helper()
	for end := time.Now().Add(slow); l.read(save+"/latest_checkpointed_iteration.txt") != iteration; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			l.t.Fatalf("%s never had iteration %s", save, iteration)
		}
	}
}

// Claim: a newer checkpoint on disk is taken before an older one in memory.
func diskIsNewer(l *launching) {
	cmd, notes := l.start("launch --nproc-per-node 8 --max-restarts 2 -- pretrain_gpt "+atSix+"--save-interval 7 --save d --log-jsonl d.jsonl", "d.jsonl", 8)
	l.saved("d", "7")
	if err := syscall.Kill(ranksOf(l.t, cmd.Process.Pid)[2], syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(notes.String(), "the checkpoint of iteration 7 in d is newer than that of iteration 6 in memory") {
		l.t.Fatalf("%v: %s", err, notes)
	}
	l.sameEnd("d.jsonl", "d")
}

// Claim (docs/failures.md): the count of --max-restarts restarts with a newer checkpoint in
// memory, also where nothing is on disk.
func memoryIsProgress(l *launching) {
	cmd, notes := l.start("launch --nproc-per-node 8 --max-restarts 1 -- pretrain_gpt "+atSix+"--log-jsonl p.jsonl", "p.jsonl", 8)
	if err := syscall.Kill(ranksOf(l.t, cmd.Process.Pid)[0], syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(notes.String(), "restarting (1 of 1 since iteration 6)") {
		l.t.Fatalf("%v: %s", err, notes)
	}
}

// Claim: memory checkpoints are refused where nobody holds memory for them.
func memoryRefused(l *launching) {
	if err := os.WriteFile(filepath.Join(l.dir, "hosts"), []byte("nowhere slots=8\n"), 0o644); err != nil {
		l.t.Fatal(err)
	}
	for line, want := range map[string]string{
		"pretrain_gpt " + atSix + "--world-size 8":                      "needs monotron launch, which keeps the memory",
		"launch --hostfile hosts -- pretrain_gpt " + atSix:              "with --hostfile needs --auto-restart",
		"pretrain_gpt " + atSix + "--replication-jump 8 --world-size 8": "--replication-jump 8 is out of range: in a run of 8 ranks it must be from 1 to 7 (usually the number of ranks of a host), or 0 for no copies",
	} {
		cmd, notes := l.command(line + " --save left")
		if _ = cmd.Run(); cmd.ProcessState.ExitCode() != 2 || !strings.Contains(notes.String(), want) {
			l.t.Errorf("%s: code %d: %s", line, cmd.ProcessState.ExitCode(), notes)
		}
		if _, err := os.Stat(filepath.Join(l.dir, "left")); !errors.Is(err, fs.ErrNotExist) {
			l.t.Errorf("%s: the folder of --save: %v", line, err)
		}
	}
}

// Claim (docs/plan.md): the bytes of memory checkpoints in a plan are those of the tensors in the
// segments that the launcher holds.
func memoryPlanned(l *launching) {
	t := l.t
	const flags = atSix + "--replication-jump 3 "
	planned := struct {
		Ranks []struct {
			Copies int64 `json:"memory_checkpoint_bytes"`
		}
	}{}
	cmd, notes := l.command("plan run --json pretrain_gpt --world-size 8 " + flags)
	text, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(text, &planned)
	}
	if err != nil || len(planned.Ranks) != 8 {
		t.Fatalf("%v: %s %s", err, text, notes)
	}
	run, notes := l.start("launch --nproc-per-node 8 -- pretrain_gpt "+flags+"--log-jsonl m.jsonl", "m.jsonl", 8)
	kept := int64(0)
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", run.Process.Pid))
	for _, file := range files {
		if name, _ := os.Readlink(file); !strings.Contains(name, "monotron memory checkpoint") {
			continue
		}
		var header [16]byte
		if f, err := os.Open(file); err == nil {
			_, _ = f.ReadAt(header[:], 0) // an empty one has none
			f.Close()
		}
		kept += int64(binary.LittleEndian.Uint64(header[8:]))
	}
	if ended := run.Wait(); err != nil || ended != nil {
		t.Fatalf("%v, %v: %s", err, ended, notes)
	}
	want := int64(0)
	for _, r := range planned.Ranks {
		want += r.Copies
	}
	if kept != want || kept == 0 {
		t.Errorf("the segments hold %d bytes, the plan says %d", kept, want)
	}
}
