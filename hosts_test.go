package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHosts starts ranks on other hosts by ssh: a real sshd on this machine's
// loopback addresses, with a key of the test's own.
func TestHosts(t *testing.T) {
	if testing.Short() {
		t.Skip("processes and sshd: not with -short")
	}
	bin := program(t)
	for name, test := range map[string]func(*launching, string){
		"equal goroutines, bit for bit":    hostsEqualGoroutines,
		"words reach the ranks unchanged":  hostsGetWordsUnchanged,
		"a killed rank is named":           hostsNameTheKilled,
		"a signal to the launcher":         hostsSaveAndStop,
		"a host that cannot be reached":    hostUnreachable,
		"a launcher that dies leaves none": hostsEndWithTheLauncher,
	} {
		t.Run(name, func(t *testing.T) {
			l := newLaunching(t, bin)
			test(l, "launch --hostfile hosts --ssh-config "+sshd(t, l)+" ")
		})
	}
}

// sshd runs one until the test ends, writes a hostfile of two of its addresses,
// four ranks each, and returns the settings that ssh needs to reach it.
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
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	free.Close()
	me, err := user.Current()
	if err != nil {
		t.Skip(err)
	}
	write(t, at("sshd_config"), fmt.Sprintf("Port %d\nListenAddress 0.0.0.0\nHostKey %s\nAuthorizedKeysFile %s\nPidFile none\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nMaxStartups 100\n",
		port, at("host"), at("user.pub")))
	write(t, at("ssh_config"), fmt.Sprintf("Host *\nPort %d\nUser %s\nIdentityFile %s\nIdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile %s\nLogLevel ERROR\n",
		port, me.Username, at("user"), at("known")))
	write(t, filepath.Join(l.dir, "hosts"), "# two hosts\n127.0.0.1 slots=4\n127.0.0.2:4\n")
	if os.Geteuid() == 0 {
		_ = os.MkdirAll("/run/sshd", 0o755) // it may be there
	}
	cmd := exec.Command(program, "-D", "-e", "-f", at("sshd_config"))
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Skip("sshd: ", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		out, err := exec.Command("ssh", "-F", at("ssh_config"), "-o", "BatchMode=yes", "127.0.0.2", "true").CombinedOutput()
		if err == nil {
			return at("ssh_config")
		}
		if time.Now().After(end) {
			t.Skipf("an sshd of one's own is not permitted here: %v %s %s", err, out, said.String())
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Claim (issue F, part 2): launch --hostfile gives the numbers of one process.
func hostsEqualGoroutines(l *launching, launch string) {
	l.must("pretrain_gpt " + eight + "--train-iters 4 --world-size 8 --log-jsonl one.jsonl")
	l.must(launch + "-- pretrain_gpt " + eight + "--train-iters 4 --log-jsonl many.jsonl")
	if want, got := l.numbers("one.jsonl"), l.numbers("many.jsonl"); want != got || strings.Count(want, "grad_norm") < 4 {
		l.t.Errorf("in one process\n%s\non two hosts\n%s", want, got)
	}
}

// Claim (issue F, part 8): arguments do not pass a shell, whatever is in them, and
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

// Claim (issue F, part 2): a rank killed on another host is named, with the signal,
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

// Claim (issue F, part 2 and show 4): SIGTERM to the launcher makes all hosts save
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

// Claim (issue F, part 2): a host that ssh does not reach is named; the exit code
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

// Claim (issue F, part 2): when the launcher is killed, the ranks on the hosts end.
func hostsEndWithTheLauncher(l *launching, launch string) {
	cmd, _ := l.start(launch+"-- pretrain_gpt "+eight+"--train-iters 20000 --log-jsonl e.jsonl", "e.jsonl", 1)
	pids := map[int]int{1: l.victim(1), 5: l.victim(5)}
	if err := cmd.Process.Kill(); err != nil {
		l.t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	gone(l.t, pids)
}
