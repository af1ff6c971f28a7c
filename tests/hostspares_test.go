package tests

import (
	"fmt"
	"strings"
	"syscall"
)

// spareHosts is launch with the hosts of hosts_test.go, and a third one that is spare.
func spareHosts(launch string) string {
	return strings.Replace(launch, "--hostfile hosts", "--hostfile three", 1) + "--spares 1 --auto-restart --host-wait-seconds 3 "
}

// Claim (docs/failures.md): under --hostfile a spare host replaces one that is lost, with its ranks, its launcher and the
// connection to it; the run continues from the memory of the others with the numbers and bytes of an undisturbed one.
func hostSpareReplaces(l *launching, launch string, lost int) {
	l.must("pretrain_gpt " + eight + "--train-iters 12 --world-size 8 --save whole --save-interval 6 --log-jsonl whole.jsonl")
	cmd, notes := l.start(spareHosts(launch)+"-- pretrain_gpt "+atSix+"--replication-jump 4 --save s --log-jsonl s.jsonl", "s.jsonl", 8)
	perish(l.daemons[lost])
	if err := cmd.Wait(); err != nil {
		l.t.Errorf("%v: %s", err, notes)
	}
	l.says(notes.String(), fmt.Sprintf("host 127.0.0.%d is lost", lost+1), fmt.Sprintf("host 2 replaces host %[1]d as node rank %[1]d", lost), "loaded the memory checkpoint: iteration 6", "were read from copies")
	l.sameEnd("s.jsonl", "s")
}

// Claim (docs/failures.md): without spare hosts the launcher on a host that answers again is started again, and its ranks
// continue from the memory of the other host.
func hostReturnsToMemory(l *launching, launch string) {
	l.must("pretrain_gpt " + eight + "--train-iters 12 --world-size 8 --save whole --save-interval 6 --log-jsonl whole.jsonl")
	cmd, notes := l.start(launch+"--auto-restart --host-wait-seconds 60 -- pretrain_gpt "+atSix+"--replication-jump 4 --save r --log-jsonl r.jsonl", "r.jsonl", 8)
	// The host's sshd stays; all that it has started for this run is gone.
	children := childrenOf(l.daemons[1])
	if len(children) == 0 {
		l.t.Fatal("the sshd of host 1 has started nothing")
	}
	for _, child := range children {
		perish(child)
	}
	if err := cmd.Wait(); err != nil {
		l.t.Errorf("%v: %s", err, notes)
	}
	l.says(notes.String(), "host 127.0.0.2 is lost", "host 127.0.0.2 answers again", "loaded the memory checkpoint: iteration 6", "the shards of ranks [4 5 6 7] were read from copies")
	l.sameEnd("r.jsonl", "r")
	// A signal to a run whose launchers stay.
	again, notes := l.start(launch+"--auto-restart -- pretrain_gpt "+eight+"--train-iters 20000 --memory-checkpoint-interval 100 --save t --save-interval 1000 --log-jsonl t.jsonl", "t.jsonl", 2)
	if err := again.Process.Signal(syscall.SIGTERM); err != nil {
		l.t.Fatal(err)
	}
	if _ = again.Wait(); again.ProcessState.ExitCode() != 75 || l.read("t/latest_checkpointed_iteration.txt") == "" {
		l.t.Errorf("%s: %s", again.ProcessState, notes)
	}
}

// Claim: spare hosts that cannot be are refused, and so is a host that ssh does not reach.
func hostSparesRefused(l *launching, launch string) {
	write(l.t, l.dir+"/unreachable", "127.0.0.1 slots=4\nno-such-host.invalid slots=4\n127.0.0.2 slots=4\n")
	for line, want := range map[string]string{
		launch + "--spares 1 -- pretrain_gpt " + eight + "--save x":                                                                                  "--spares 1 needs --auto-restart",
		launch + "--spares 2 --auto-restart -- pretrain_gpt " + eight + "--save x":                                                                   "--hostfile names 2 hosts, and --spares 2 leaves no host to run ranks",
		strings.Replace(launch, "--hostfile hosts", "--hostfile unreachable", 1) + "--spares 1 --auto-restart -- pretrain_gpt " + eight + "--save x": "host no-such-host.invalid: ssh failed",
	} {
		cmd, notes := l.command(line)
		code := 2
		if strings.Contains(want, "ssh") {
			code = 74
		}
		if _ = cmd.Run(); cmd.ProcessState.ExitCode() != code || !strings.Contains(notes.String(), want) {
			l.t.Errorf("%s: %s: %s", line, cmd.ProcessState, notes)
		}
	}
}
