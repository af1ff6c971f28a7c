package tests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"monotron/internal/drawn"
)

// TestHosts starts ranks on other hosts by ssh: a real sshd on this machine's
// loopback addresses, with a key of the test's own. SEED draws half; tests/proofs/failures/hosts.sh does all.
func TestHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("processes and sshd: not with -short")
	}
	bin := program(t)
	tests := map[string]func(*launching, string){
		"equal goroutines, bit for bit":    hostsEqualGoroutines,
		"words reach the ranks unchanged":  hostsGetWordsUnchanged,
		"a killed rank is named":           hostsNameTheKilled,
		"a signal to the launcher":         hostsSaveAndStop,
		"a host that cannot be reached":    hostUnreachable,
		"a launcher that dies leaves none": hostsEndWithTheLauncher,
		"a host that does not come back":   hostsContinueWithout,
		"a spare replaces a host":          func(l *launching, launch string) { hostSpareReplaces(l, launch, 1) },
		"a spare replaces host 0":          func(l *launching, launch string) { hostSpareReplaces(l, launch, 0) },
		"a host comes back to memory":      hostReturnsToMemory,
		"spares that cannot be":            hostSparesRefused,
	}
	for _, name := range drawn.Part(t, slices.Sorted(maps.Keys(tests)), (len(tests)+1)/2) {
		t.Run(name, func(t *testing.T) {
			l := newLaunching(t, bin)
			tests[name](l, "launch --hostfile hosts --ssh-config "+sshd(t, l)+" ")
		})
	}
}

// sshd runs one for each of two hosts until the test ends, writes their hostfile, of
// four ranks each, and returns the settings that ssh needs to reach them.
func sshd(t *testing.T, l *launching) string {
	t.Helper()
	program, err := exec.LookPath("sshd")
	if err != nil {
		program = "/usr/sbin/sshd"
	}
	if _, err := os.Stat(program); err != nil {
		t.Skip("there is no sshd here (openssh-server)")
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, key := range []string{"host", "user"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at(key)).CombinedOutput(); err != nil {
			t.Skipf("ssh-keygen: %v: %s", err, out)
		}
	}
	port := freePair(t)
	me, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	write(t, at("sshd_config"), fmt.Sprintf("Port %d\nHostKey %s\nAuthorizedKeysFile %s\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nMaxStartups 100\n",
		port, at("host"), at("user.pub")))
	write(t, at("ssh_config"), fmt.Sprintf("Host *\nPort %d\nUser %s\nIdentityFile %s\nIdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile %s\nLogLevel ERROR\n",
		port, me.Username, at("user"), at("known")))
	write(t, filepath.Join(l.dir, "hosts"), "# two hosts\n127.0.0.1 slots=4\n127.0.0.2:4\n")
	write(t, filepath.Join(l.dir, "three"), "127.0.0.1 slots=4\n127.0.0.2 slots=4\n127.0.0.3 slots=4 # spare\n")
	if os.Geteuid() == 0 {
		_ = os.MkdirAll("/run/sshd", 0o755) // it may be there
	}
	var said bytes.Buffer
	for _, host := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3"} {
		cmd := exec.Command(program, "-D", "-e", "-f", at("sshd_config"), "-o", "ListenAddress="+host)
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Skip("sshd: ", err)
		}
		t.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		})
		l.daemons = append(l.daemons, cmd.Process.Pid)
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
			out, err := exec.Command("ssh", "-F", at("ssh_config"), "-o", "BatchMode=yes", host, "true").CombinedOutput()
			if err == nil {
				break
			}
			if time.Now().After(end) {
				t.Skipf("an sshd of one's own is not permitted here: %v %s %s", err, out, said.String())
			}
		}
	}
	return at("ssh_config")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Claim (docs/launch.md): launch --hostfile gives the numbers of one process.
func hostsEqualGoroutines(l *launching, launch string) {
	l.must("pretrain_gpt " + eight + "--train-iters 4 --world-size 8 --log-jsonl one.jsonl")
	l.must(launch + "-- pretrain_gpt " + eight + "--train-iters 4 --log-jsonl many.jsonl")
	if want, got := l.numbers("one.jsonl"), l.numbers("many.jsonl"); want != got || strings.Count(want, "grad_norm") < 4 {
		l.t.Errorf("in one process\n%s\non two hosts\n%s", want, got)
	}
}

// Claim (docs/launch.md): arguments do not pass a shell, whatever is in them, and
// the secret is in no command line.
func hostsGetWordsUnchanged(l *launching, launch string) {
	t := l.t
	write(t, filepath.Join(l.dir, "show.sh"), "#!/bin/sh\nprintf '<%s>' \"$@\"\necho\ncat /proc/$PPID/cmdline /proc/$$/cmdline >> lines\nprintf '%s' \"$MONOTRON_SECRET\" > secret\n")
	if err := os.Chmod(filepath.Join(l.dir, "show.sh"), 0o700); err != nil {
		t.Fatal(err)
	}
	words := []string{"a b", "$(touch bad)", "`touch bad`", "';touch bad;'", "\"", "*", "", "ü\n", "-x=1"}
	cmd := exec.Command(filepath.Join(l.bin, "monotron"), append(append(strings.Fields(launch), "--nproc-per-node", "1", "--", "./show.sh"), words...)...)
	cmd.Dir = l.dir
	out, err := cmd.Output()
	want := "<" + strings.Join(words, "><") + ">\n"
	if err != nil || strings.Count(string(out), want) != 2 || l.read("bad") != "" {
		t.Errorf("%v: %q, want twice %q", err, out, want)
	}
	if secret := l.read("secret"); len(secret) < 32 || strings.Contains(l.read("lines"), secret) {
		t.Errorf("the secret has %d characters, or stands in a command line", len(secret))
	}
}

// victim is a rank's process among all of this machine that run in the test's folder.
func (l *launching) victim(rank int) int {
	l.t.Helper()
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, e := range entries {
		environment, err := os.ReadFile(e + "/environ")
		cwd, bad := os.Readlink(e + "/cwd")
		line, _ := os.ReadFile(e + "/cmdline")
		if err == nil && bad == nil && cwd == l.dir && strings.Contains(string(line), "pretrain_gpt") &&
			strings.Contains("\x00"+string(environment), fmt.Sprintf("\x00RANK=%d\x00", rank)) {
			var pid int
			if _, err := fmt.Sscan(filepath.Base(e), &pid); err == nil {
				return pid
			}
		}
	}
	l.t.Skipf("rank %d is not to be seen in /proc", rank)
	return 0
}

// Claim (docs/failures.md): a rank killed on another host is named, with the signal,
// in the last line alone; nothing is left behind.
func hostsNameTheKilled(l *launching, launch string) {
	t := l.t
	cmd, notes := l.start(launch+"-- pretrain_gpt "+eight+"--train-iters 20000 --log-jsonl k.jsonl", "k.jsonl", 2)
	pids := map[int]int{}
	for rank := range 8 {
		pids[rank] = l.victim(rank)
	}
	if err := syscall.Kill(pids[6], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its code says it
	text := strings.TrimSpace(notes.String())
	last := text[strings.LastIndex(text, "\n")+1:]
	if code := cmd.ProcessState.ExitCode(); code != 137 || !strings.HasPrefix(last, fmt.Sprintf("monotron: rank 6 (process %d) was ended by signal 9", pids[6])) || strings.Count(text, "monotron: ") != 1 {
		t.Errorf("code %d: %s", code, text)
	}
	gone(t, pids)
}

// Claim (docs/launch.md): SIGTERM to the launcher makes all hosts save
// and end with 75.
func hostsSaveAndStop(l *launching, launch string) {
	t := l.t
	cmd, notes := l.start(launch+"-- pretrain_gpt "+eight+"--train-iters 20000 --save ck --save-interval 1000 --log-jsonl s.jsonl", "s.jsonl", 2)
	pids := map[int]int{0: l.victim(0), 7: l.victim(7)}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its code says it
	if code := cmd.ProcessState.ExitCode(); code != 75 || l.read("ck/latest_checkpointed_iteration.txt") == "" {
		t.Errorf("code %d: %s", code, notes)
	}
	gone(t, pids)
}

// Claim (docs/launch.md): a host that ssh does not reach is named; the exit code
// is not 0 and nobody waits for it.
func hostUnreachable(l *launching, launch string) {
	t := l.t
	write(t, filepath.Join(l.dir, "hosts"), "127.0.0.1 slots=1\nno-such-host.invalid slots=1\n")
	cmd, notes := l.command(launch + "-- pretrain_gpt " + strings.ReplaceAll(eight, "--pipeline-model-parallel-size 2", "") + "--train-iters 2")
	_ = cmd.Run() // its code says it
	if code := cmd.ProcessState.ExitCode(); code != 74 || !strings.Contains(notes.String(), "monotron: host no-such-host.invalid: ssh failed") {
		t.Errorf("code %d: %s", code, notes)
	}
}

// perish ends a process and all that it has started, at once, as a host that loses
// its power does.
func perish(pid int) {
	_ = syscall.Kill(pid, syscall.SIGSTOP) // it starts nothing more
	for _, child := range childrenOf(pid) {
		perish(child)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// childrenOf are the processes that one has started.
func childrenOf(pid int) (pids []int) {
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		children, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(children)) {
			if n, err := strconv.Atoi(child); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// Claim (docs/failures.md): --auto-restart continues without a host that is gone, from
// the last good checkpoint, with half of the data-parallel size, whichever host it is.
func hostsContinueWithout(l *launching, launch string) {
	t := l.t
	l.must("pretrain_gpt " + eight + steady + "--train-iters 12 --world-size 8 --log-jsonl whole.jsonl")
	cmd, notes := l.start(launch+"--auto-restart --host-wait-seconds 3 -- pretrain_gpt "+eight+steady+paused+"--save ck --save-interval 2 --log-jsonl g.jsonl", "g.jsonl", 4)
	perish(l.daemons[0]) // that of rank 0
	err := cmd.Wait()
	if text := notes.String(); err != nil || !strings.Contains(text, "lost 127.0.0.1 of 2 hosts; continuing with 1 host, 4 ranks") {
		t.Fatalf("%v: %s", err, text)
	}
	l.continuesLike("g.jsonl", "whole.jsonl", 12)
}

// continuesLike compares the last losses of a run that has gone on with fewer ranks with those
// of one that was not disturbed: the same but for the order of sums.
func (l *launching) continuesLike(name, full string, iterations int) {
	l.t.Helper()
	last := func(name string) (loss float64) {
		for _, line := range strings.Split(l.read(name), "\n") {
			var entry struct {
				Iteration int
				Loss      map[string]float64
			}
			if json.Unmarshal([]byte(line), &entry) == nil && entry.Iteration == iterations && entry.Loss["lm loss"] > 0 {
				loss = entry.Loss["lm loss"]
			}
		}
		return loss
	}
	if got, want := last(name), last(full); want == 0 || math.Abs(got-want) > 1e-3*want {
		l.t.Errorf("the loss at step %d is %v, %v in a run that was not disturbed", iterations, got, want)
	}
}

// Claim (docs/launch.md): when the launcher is killed, the ranks on the hosts end.
func hostsEndWithTheLauncher(l *launching, launch string) {
	cmd, _ := l.start(launch+"-- pretrain_gpt "+eight+"--train-iters 20000 --log-jsonl e.jsonl", "e.jsonl", 1)
	pids := map[int]int{1: l.victim(1), 5: l.victim(5)}
	if err := cmd.Process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	gone(l.t, pids)
}
