package tests

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// network is hosts that are network namespaces, each with a name and an address of
// its own, at one bridge.
type network struct {
	t     *testing.T
	names []string
}

// newNetwork makes so many hosts, or skips.
func newNetwork(t *testing.T, hosts int) *network {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("there is no ip here (iproute2)")
	}
	n := &network{t: t}
	bridge := fmt.Sprintf("mt%dsw", os.Getpid()%100000)
	must := func(line string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Skipf("network namespaces are not permitted here: ip %s: %v: %s", line, err, out)
		}
	}
	add := func(name string) {
		must("netns add " + name)
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	}
	add(bridge)
	must("-n " + bridge + " link add br0 type bridge")
	must("-n " + bridge + " link set br0 up")
	for i := range hosts {
		name := fmt.Sprintf("mt%dh%d", os.Getpid()%100000, i)
		add(name)
		n.names = append(n.names, name)
		must(fmt.Sprintf("-n %s link add veth%d type veth peer name eth0 netns %s", bridge, i, name))
		must(fmt.Sprintf("-n %s link set veth%d master br0 up", bridge, i))
		must(fmt.Sprintf("-n %s addr add 10.99.7.%d/24 dev eth0", name, i+1))
		must(fmt.Sprintf("-n %s link set eth0 up", name))
		must(fmt.Sprintf("-n %s link set lo up", name))
	}
	if out, err := n.on(0, "true").CombinedOutput(); err != nil {
		t.Skipf("names of hosts are not permitted here: %v: %s", err, out)
	}
	return n
}

// on is a command on a host: with its network and its name.
func (n *network) on(host int, words ...string) *exec.Cmd {
	line := append([]string{"netns", "exec", n.names[host], "unshare", "--uts", "sh", "-c", `hostname "$0" && exec "$@"`, n.names[host]}, words...)
	return exec.Command("ip", line...)
}

// TestNamespaces runs ranks on hosts that are network namespaces.
func TestNamespaces(t *testing.T) {
	if testing.Short() {
		t.Skip("processes and namespaces: not with -short")
	}
	l := newLaunching(t, program(t))
	l.must("pretrain_gpt " + eight + "--train-iters 4 --world-size 8 --log-jsonl one.jsonl")
	t.Run("two hosts by launch", func(t *testing.T) { twoHosts(t, l) })
	t.Run("three hosts by hand", func(t *testing.T) { threeHosts(t, l) })
	t.Run("a full /dev/shm", func(t *testing.T) { fullSharedMemory(t, l) })
	t.Run("a lack of memory", func(t *testing.T) { outOfMemory(t, l) })
	t.Run("refused by the limit", func(t *testing.T) { refusedByTheLimit(t, l) })
	t.Run("doctor --hosts", func(t *testing.T) { doctorOfHosts(t, l) })
}

// gloo is where `make gloo` has put the library; "off" where it has not.
func gloo() string {
	path := filepath.Join(repository, "bin", "libmt_gloo.so")
	if _, err := os.Stat(path); err != nil {
		return "off"
	}
	return path
}

// wait starts the commands in the run's folder and waits for all of them.
func (l *launching) wait(t *testing.T, commands ...*exec.Cmd) (notes string) {
	t.Helper()
	var said strings.Builder
	for _, c := range commands {
		c.Dir, c.Stdout, c.Stderr = l.dir, &strings.Builder{}, &strings.Builder{}
		c.Env = append(c.Environ(), "MONOTRON_SECRET=0123456789abcdef0123456789abcdef", "MONOTRON_GLOO="+gloo())
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	for _, c := range commands {
		err = errors.Join(err, c.Wait())
		fmt.Fprint(&said, c.Stdout, c.Stderr)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	return said.String()
}

func (l *launching) same(t *testing.T, name string) {
	t.Helper()
	if want, got := l.numbers("one.jsonl"), l.numbers(name); want != got || strings.Count(want, "grad_norm") < 4 {
		t.Errorf("in one process\n%s\non hosts\n%s", want, got)
	}
}

// Claim (docs/hosts.md): TP2 x PP2 x DP2 over two hosts, by launch, gives the
// numbers of one process; between hosts Gloo carries the bytes where it is built.
func twoHosts(t *testing.T, l *launching) {
	n := newNetwork(t, 2)
	var launchers []*exec.Cmd
	for host := range 2 {
		words := strings.Fields(fmt.Sprintf("%s/monotron launch --nproc-per-node 4 --nnodes 2 --node-rank %d --master-addr 10.99.7.1 -- pretrain_gpt %s --train-iters 4 --log-jsonl two.jsonl", l.bin, host, eight))
		launchers = append(launchers, n.on(host, words...))
	}
	notes := l.wait(t, launchers...)
	l.same(t, "two.jsonl")
	want := "8 ranks on 2 hosts; rank 0: shared memory to 3 ranks, Gloo to "
	if gloo() == "off" {
		want = "8 ranks on 2 hosts; rank 0: shared memory to 3 ranks, no Gloo ("
	}
	if !strings.Contains(notes, want) {
		t.Errorf("it said %s, want %s", notes, want)
	}
}

// Claim (docs/hosts.md): the same over three hosts of 3, 3 and 2 ranks, started
// with the variables of torchrun.
func threeHosts(t *testing.T, l *launching) {
	n := newNetwork(t, 3)
	var ranks []*exec.Cmd
	for rank := range 8 {
		host, local := rank/3, rank%3
		c := n.on(host, strings.Fields(l.bin+"/pretrain_gpt "+eight+" --train-iters 4 --log-jsonl three.jsonl")...)
		c.Env = append(os.Environ(), fmt.Sprint("RANK=", rank), "WORLD_SIZE=8", fmt.Sprint("LOCAL_RANK=", local), fmt.Sprint("LOCAL_WORLD_SIZE=", min(3, 8-3*host)),
			"MASTER_ADDR=10.99.7.1", "MASTER_PORT=29511")
		ranks = append(ranks, c)
	}
	l.wait(t, ranks...)
	l.same(t, "three.jsonl")
}

// Claim (docs/hosts.md): where /dev/shm is full the ranks talk by another way, to
// the same numbers; rank 0 says why, and the cure.
func fullSharedMemory(t *testing.T, l *launching) {
	script := "mount -t tmpfs -o size=16k tmpfs /dev/shm || exit 99; exec \"$@\""
	words := append([]string{"--mount", "sh", "-c", script, "sh"}, strings.Fields(l.bin+"/monotron launch --nproc-per-node 8 -- pretrain_gpt "+eight+" --train-iters 4 --log-jsonl full.jsonl")...)
	cmd := exec.Command("unshare", words...)
	cmd.Dir = l.dir
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == 99 || strings.Contains(string(out), "Operation not permitted") {
		t.Skipf("a /dev/shm of one's own is not permitted here: %v: %s", err, out)
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	l.same(t, "full.jsonl")
	for _, want := range []string{"no shared memory (/dev/shm has less than", "--shm-size=1g", "MiB free, so its ranks may use a slower transport"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in: %s", want, out)
		}
	}
}

// controlGroup is a command of l in a control group with 256 MiB of memory, and what that
// has used at most; or the test is skipped.
func controlGroup(t *testing.T, l *launching, words ...string) (cmd *exec.Cmd, peak func() string) {
	t.Helper()
	group := fmt.Sprintf("/sys/fs/cgroup/memory/mt%d", os.Getpid())
	limit, most := "memory.limit_in_bytes", "memory.max_usage_in_bytes"
	if _, err := os.Stat(filepath.Dir(group)); err != nil { // version 2
		group = fmt.Sprintf("/sys/fs/cgroup/mt%d", os.Getpid())
		limit, most = "memory.max", "memory.peak"
	}
	err := os.Mkdir(group, 0o755)
	t.Cleanup(func() { _ = os.Remove(group) }) // it may never have been
	if err = errors.Join(err, os.WriteFile(filepath.Join(group, limit), []byte("268435456"), 0o644)); err != nil {
		t.Skipf("a control group of one's own is not permitted here: %v", err)
	}
	cmd = exec.Command("sh", append([]string{"-c", `echo $$ > "$0/cgroup.procs" && exec "$@"`, group}, words...)...)
	cmd.Dir = l.dir
	return cmd, func() string {
		text, err := os.ReadFile(filepath.Join(group, most))
		if err != nil {
			t.Logf("%v: how much the group held is not known", err)
		}
		return strings.TrimSpace(string(text))
	}
}

// Claim (docs/failures.md): a rank that the kernel ends for lack of memory in the run's
// control group is named, with that reason and what it used.
func outOfMemory(t *testing.T, l *launching) {
	cmd, _ := controlGroup(t, l, l.bin+"/monotron", "launch", "--nproc-per-node", "2", "--", "/usr/bin/tail", "/dev/zero")
	out, err := cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 137 || !strings.Contains(string(out), "was ended by signal 9 (killed); probably by the kernel for lack of memory, since the kernel ended ") {
		t.Errorf("%v: %s", err, out)
	}
}

// Claim (docs/plan.md): a run that the limit of its control group leaves no memory for is
// refused before it asks for memory; the same with --no-plan is ended by the kernel.
func refusedByTheLimit(t *testing.T, l *launching) {
	t.Setenv("GOGC", "") // make test raises it
	const large = "--hidden-size 512 --num-layers 24 --num-attention-heads 8 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 --global-batch-size 2 " +
		"--train-iters 2 --lr 1e-3 --tokenizer-type NullTokenizer --vocab-size 1000 --mock-data --world-size 2"
	run := func(flags string) (int, string, string) {
		var code int
		var said, kept string
		t.Run("run"+flags, func(t *testing.T) { // each gets a group of its own
			cmd, peak := controlGroup(t, l, append([]string{l.bin + "/pretrain_gpt"}, strings.Fields(large+flags)...)...)
			out, _ := cmd.CombinedOutput()
			code, said, kept = cmd.ProcessState.ExitCode(), string(out), peak()
		})
		return code, said, kept
	}
	code, said, kept := run("")
	if said == "" {
		t.Skip("no control group")
	}
	if code != 70 || !strings.Contains(said, "the run does not fit into memory: the 2 ranks on this host need ") || !strings.Contains(said, "left of the control group's limit") {
		t.Errorf("exit code %d: %s", code, said)
	}
	if n, err := strconv.Atoi(kept); err == nil && n > 128<<20 {
		t.Errorf("it held %d bytes before it was refused", n)
	}
	// What fits by its tensors alone starts with a warning.
	if _, said, _ = run(" --num-layers 2 --train-iters 1"); !strings.Contains(said, "the run may not fit into memory: its tensors need ") || !strings.Contains(said, "left of the control group's limit") {
		t.Errorf("no warning of a run that leaves no memory for the program: %s", said)
	}
	if code, said, _ = run(" --no-plan"); code != -1 {
		t.Errorf("--no-plan: exit code %d, where the kernel should have ended it: %s", code, said)
	}
}

// Claim (docs/hosts.md): doctor --hosts runs the preflight alone and prints a
// table of bandwidths with a line for each host.
func doctorOfHosts(t *testing.T, l *launching) {
	n := newNetwork(t, 3)
	var launchers []*exec.Cmd
	for host := range 3 {
		launchers = append(launchers, n.on(host, strings.Fields(fmt.Sprintf("%s/monotron launch --nproc-per-node 2 --nnodes 3 --node-rank %d --master-addr 10.99.7.1 --master-port 29512 -- doctor --hosts", l.bin, host))...))
	}
	said := l.wait(t, launchers...)
	for _, want := range []string{"6 ranks on 3 hosts: the same program", "messages of 16 MiB from host to host", "three layers trained for 10 steps over all ranks", "0 " + n.names[0], "2 " + n.names[2]} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in: %s", want, said)
		}
	}
	t.Log(said)
}
