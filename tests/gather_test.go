package tests

import (
	"bytes"
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"monotron/mpu/bootstrap/rendezvous"
)

// freePair is a port with a free one above it.
func freePair(t *testing.T) int {
	t.Helper()
	for range 50 {
		addr, err := rendezvous.FreeAddr()
		if err != nil {
			t.Fatal(err)
		}
		port := int(netip.MustParseAddrPort(addr).Port())
		above, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+1))
		if err == nil {
			above.Close()
			return port
		}
	}
	t.Skip("no two free ports side by side")
	return 0
}

// nodes starts a launcher for each of two hosts, which are both this one.
func (l *launching) nodes(line string) (cmds []*exec.Cmd, notes []*bytes.Buffer) {
	l.t.Helper()
	return l.nodesAndSpares(0, line)
}

// nodesAndSpares also starts spare hosts.
func (l *launching) nodesAndSpares(spares int, line string) (cmds []*exec.Cmd, notes []*bytes.Buffer) {
	l.t.Helper()
	port := freePair(l.t)
	cmds, notes = make([]*exec.Cmd, 2+spares), make([]*bytes.Buffer, 2+spares)
	for node := range cmds {
		cmds[node], notes[node] = l.command(fmt.Sprintf("launch --nproc-per-node %d --nnodes 2 --spares %d --node-rank %d --master-addr 127.0.0.1 --master-port %d --auto-restart --host-wait-seconds %d -- pretrain_gpt %s",
			cmp.Or(l.perHost, 4), spares, node, port, cmp.Or(l.hostWait, 3), line))
		cmds[node].Env = append(cmds[node].Environ(), "MONOTRON_SECRET=0123456789abcdef0123456789abcdef")
		if err := cmds[node].Start(); err != nil {
			l.t.Fatal(err)
		}
	}
	return cmds, notes
}

// Claim (docs/failures.md): where the launcher of one of two hosts is gone for good,
// --auto-restart continues with the ranks of the other, from the last good checkpoint.
func continuesWithoutHost(l *launching) {
	t := l.t
	l.must("pretrain_gpt " + eight + steady + "--train-iters 12 --world-size 8 --log-jsonl whole.jsonl")
	cmds, notes := l.nodes(eight + steady + paused + "--save ck --save-interval 2 --log-jsonl g.jsonl")
	l.await("g.jsonl", 4, cmds[0], notes[0])
	if err := cmds[1].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmds[1].Wait() // it was killed
	err := cmds[0].Wait()
	if text := notes[0].String(); err != nil || !strings.Contains(text, "lost number 1 of 2 hosts; continuing with 1 host, 4 ranks") {
		t.Fatalf("%v: %s", err, text)
	}
	l.continuesLike("g.jsonl", "whole.jsonl", 12)
}

// Claim (docs/failures.md): where the layout does not allow it, one error says so.
func cannotContinueWithoutHost(l *launching) {
	t := l.t
	cmds, notes := l.nodes(strings.Replace(eight, "--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size 4", 1) + "--train-iters 20000 --save ck --save-interval 2 --log-jsonl c.jsonl")
	l.await("c.jsonl", 4, cmds[0], notes[0])
	if err := cmds[1].Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = cmds[1].Wait(), cmds[0].Wait() // their codes say it
	want := "monotron: lost number 1 of 2 hosts: the run has 1 host (4 ranks) left, which cannot run the layout (tensor 2 x pipeline 4"
	if code := cmds[0].ProcessState.ExitCode(); code != 74 || strings.Count(notes[0].String(), want) != 1 || strings.Count(notes[0].String(), "monotron: ") != 1 {
		t.Errorf("code %d: %s", code, notes[0])
	}
}

// Claim (docs/failures.md): a rank that is killed on one of two hosts does not continue
// without the host: both start again together, to the numbers of a run that was not
// disturbed.
func hostsStartAgainTogether(l *launching) {
	t := l.t
	l.must("pretrain_gpt " + eight + "--train-iters 12 --world-size 8 --log-jsonl whole.jsonl")
	cmds, notes := l.nodes(eight + paused + "--save ck --save-interval 2 --log-jsonl t.jsonl")
	l.await("t.jsonl", 4, cmds[0], notes[0])
	if err := syscall.Kill(ranksOf(t, cmds[1].Process.Pid)[6], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for node := range cmds {
		if err := cmds[node].Wait(); err != nil || strings.Count(notes[node].String(), "restarting (1 of 3") != 1 {
			t.Errorf("host %d: %v: %s", node, err, notes[node])
		}
	}
	full, rest := l.numbers("whole.jsonl"), l.numbers("t.jsonl")
	if tail := full[strings.LastIndex(full[:len(full)*3/4], `"iteration"`):]; !strings.HasSuffix(rest, tail) {
		t.Errorf("it went on with\n%s\nwant the end of\n%s", rest, full)
	}
}
