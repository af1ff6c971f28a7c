package tests

import (
	"bytes"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// TestSpares starts runs on two hosts with spare ones, and kills some of them.
func TestSpares(t *testing.T) {
	if testing.Short() {
		t.Skip("several runs of a dozen processes: not with -short")
	}
	l := newLaunching(t, program(t))
	l.must("pretrain_gpt " + eight + "--train-iters 12 --world-size 8 --save whole --save-interval 6 --log-jsonl whole.jsonl")
	l.each(map[string]func(*launching){
		"a spare takes a place":             func(l *launching) { spareReplaces(l, 1) },
		"a spare takes host 0's place":      func(l *launching) { spareReplaces(l, 0) },
		"from disk":                         spareFromDisk,
		"a rank is lost, not its host":      spareNotNeeded,
		"no spare is left":                  noSpareLeft,
		"a spare that is stopped or killed": spareGoes,
		"flags that cannot be combined":     spareRefused,
	})
}

// ended waits for launchers, which must end with these codes, and gives all that they said.
func (l *launching) ended(cmds []*exec.Cmd, notes []*bytes.Buffer, codes ...int) (said string) {
	l.t.Helper()
	for _, cmd := range cmds {
		_ = cmd.Wait() // its code says it
	}
	for host, cmd := range cmds {
		said += notes[host].String()
		if code := cmd.ProcessState.ExitCode(); code != codes[host] {
			l.t.Errorf("host %d: code %d, want %d: %s", host, code, codes[host], notes[host])
		}
	}
	return said
}

func (l *launching) says(said string, lines ...string) {
	l.t.Helper()
	for _, line := range lines {
		if !strings.Contains(said, line) {
			l.t.Errorf("%q is not in %s", line, said)
		}
	}
}

// checkLimit is how long, in seconds, hosts wait for a spare one that still checks itself on a busy machine.
const checkLimit = 120

// Claim (docs/failures.md): a spare host replaces one that is killed, of host 0, where
// they met, too; the run continues from the memory checkpoint with the numbers and bytes of
// an undisturbed one.
func spareReplaces(l *launching, lost int) {
	name := "s" + string(rune('0'+lost))
	l.hostWait = checkLimit
	cmds, notes := l.nodesAndSpares(1, atSix+"--replication-jump 4 --save "+name+" --log-jsonl "+name+".jsonl")
	l.await(name+".jsonl", 8, cmds[0], notes[0])
	if err := cmds[lost].Process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	codes := []int{0, 0, 0}
	codes[lost] = -1
	said := l.ended(cmds, notes, codes...)
	shards := []string{"[0 1 2 3]", "[4 5 6 7]"}[lost]
	l.says(said, "spare host 2 has passed its check and waits", "host 2 replaces host "+name[1:]+" as node rank "+name[1:],
		"loaded the memory checkpoint: iteration 6", "the shards of ranks "+shards+" were read from copies")
	l.sameEnd(name+".jsonl", name)
}

// Claim: without memory checkpoints the run continues from disk.
func spareFromDisk(l *launching) {
	l.hostWait = checkLimit
	cmds, notes := l.nodesAndSpares(1, eight+paused+"--save disk --save-interval 2 --log-jsonl disk.jsonl")
	l.await("disk.jsonl", 8, cmds[0], notes[0])
	if err := cmds[1].Process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	l.says(l.ended(cmds, notes, 0, -1, 0), "host 2 replaces host 1 as node rank 1", "loaded disk/iter_0000006")
	l.sameEnd("disk.jsonl", "disk")
}

// Claim: a rank that is killed costs no host its rank.
func spareNotNeeded(l *launching) {
	cmds, notes := l.nodesAndSpares(1, atSix+"--replication-jump 4 --save kept --log-jsonl kept.jsonl")
	l.await("kept.jsonl", 8, cmds[0], notes[0])
	if err := syscall.Kill(ranksOf(l.t, cmds[1].Process.Pid)[6], syscall.SIGKILL); err != nil {
		l.t.Fatal(err)
	}
	said := l.ended(cmds, notes, 0, 0, 0)
	l.says(said, "loaded the memory checkpoint: iteration 6", "the run has ended, and this spare host was not needed")
	if strings.Contains(said, " replaces host ") || strings.Contains(said, "were read from copies") {
		l.t.Errorf("a host lost its place: %s", said)
	}
	l.sameEnd("kept.jsonl", "kept")
}

// Claim: where no spare is left the run continues with fewer hosts, as without spares.
func noSpareLeft(l *launching) {
	cmds, notes := l.nodesAndSpares(1, atSix+steady+"--replication-jump 4 --save none --save-interval 2 --log-jsonl none.jsonl")
	l.await("none.jsonl", 8, cmds[0], notes[0])
	for _, host := range []int{1, 2} {
		if err := cmds[host].Process.Kill(); err != nil {
			l.t.Fatal(err)
		}
	}
	l.says(l.ended(cmds, notes, 0, -1, -1), "lost number 1, 2 of 3 hosts; continuing with 1 host, 4 ranks", "no complete memory checkpoint", "--replication-jump 4 has no effect with the 4 ranks that are left")
}

// Claim: spare hosts that go disturb nothing, and end with their own code.
func spareGoes(l *launching) {
	cmds, notes := l.nodesAndSpares(2, eight+paused+"--save goes --save-interval 2 --log-jsonl goes.jsonl")
	l.await("goes.jsonl", 8, cmds[0], notes[0])
	if err := cmds[2].Process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	if err := cmds[3].Process.Signal(syscall.SIGTERM); err != nil {
		l.t.Fatal(err)
	}
	said := l.ended(cmds, notes, 0, 0, -1, 75)
	l.says(said, "stopped while waiting as a spare host")
	if strings.Contains(said, "restarting") {
		l.t.Errorf("the run was disturbed: %s", said)
	}
	l.sameEnd("goes.jsonl", "goes")
}

func spareRefused(l *launching) {
	for flags, want := range map[string]string{
		"--nnodes 2 --spares 1 --node-rank 2 --master-addr x":                "--spares 1 needs --auto-restart",
		"--nnodes 2 --spares 1 --node-rank 3 --master-addr x --auto-restart": "must be from 0 to 2",
		"--nnodes 1 --spares 1 --auto-restart":                               "need --master-addr",
	} {
		cmd, notes := l.command("launch " + flags + " -- pretrain_gpt --save x")
		if _ = cmd.Run(); cmd.ProcessState.ExitCode() != 2 || !strings.Contains(notes.String(), want) {
			l.t.Errorf("%s: code %d: %s", flags, cmd.ProcessState.ExitCode(), notes)
		}
	}
}
