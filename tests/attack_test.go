package tests

import (
	"bufio"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"monotron/mpu/bootstrap/rendezvous"
)

// portsOf are the TCP ports at which a process listens.
func portsOf(t *testing.T, pid int) (ports []int) {
	t.Helper()
	own := map[string]bool{}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if to, err := os.Readlink(f); err == nil && strings.HasPrefix(to, "socket:[") {
			own[strings.Trim(to, "socket:[]")] = true
		}
	}
	for _, table := range []string{"tcp", "tcp6"} {
		f, err := os.Open(fmt.Sprintf("/proc/%d/net/%s", pid, table))
		if err != nil {
			continue // not on this system
		}
		for lines := bufio.NewScanner(f); lines.Scan(); {
			w := strings.Fields(lines.Text())
			if len(w) < 10 || w[3] != "0A" || !own[w[9]] {
				continue
			}
			_, port, _ := strings.Cut(w[1], ":")
			if n, err := strconv.ParseInt(port, 16, 32); err == nil {
				ports = append(ports, int(n))
			}
		}
		f.Close() // it was read
	}
	return ports
}

// Claim (docs/launch.md): a port scan, a wrong secret, garbage bytes and slow-loris
// against every port of the run, the store's and the heartbeats' among them, change
// neither its numbers nor its end.
func attacked(l *launching) {
	t := l.t
	iters := 30
	if n, err := strconv.Atoi(os.Getenv("ATTACK_ITERS")); err == nil {
		iters = n
	}
	line := eight + fmt.Sprintf("--train-iters %d --eval-interval 1000 ", iters)
	cmd, notes := l.start("launch --nproc-per-node 8 -- pretrain_gpt "+line+"--log-jsonl attacked.jsonl", "attacked.jsonl", 3)
	var ports []int
	for _, pid := range ranksOf(t, cmd.Process.Pid) {
		ports = append(ports, portsOf(t, pid)...)
	}
	over := make(chan struct{})
	var all sync.WaitGroup
	var calls [4]int
	for _, attack := range []func(){
		func() { calls[0] += scan(ports) },
		func() { calls[1] += wrongSecret(ports) },
		func() { calls[2] += garbage(ports) },
		func() { calls[3] += loris(ports, over) },
	} {
		all.Go(func() {
			for {
				attack()
				select {
				case <-over:
					return
				case <-time.After(200 * time.Millisecond):
				}
			}
		})
	}
	err := cmd.Wait()
	close(over)
	all.Wait()
	t.Logf("%d ports; %d scans, %d wrong secrets, %d times garbage, %d slow connections", len(ports), calls[0], calls[1], calls[2], calls[3])
	if err != nil || len(ports) < 9 {
		t.Fatalf("%d ports, %v: %s", len(ports), err, notes)
	}
	l.must("pretrain_gpt " + line + "--world-size 8 --log-jsonl calm.jsonl")
	if a, b := l.numbers("attacked.jsonl"), l.numbers("calm.jsonl"); a != b || strings.Count(a, "iteration") < iters {
		t.Errorf("%d and %d bytes of numbers, which differ", len(a), len(b))
	}
}

// each calls f with a connection to every port that answers.
func each(ports []int, f func(net.Conn)) (n int) {
	for _, port := range ports {
		c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), time.Second)
		if err == nil {
			f(c)
			n++
		}
	}
	return n
}

func scan(ports []int) int { return each(ports, func(c net.Conn) { c.Close() }) }

func wrongSecret(ports []int) int {
	return each(ports, func(c net.Conn) {
		_ = rendezvous.Call(c, []byte("not the secret of this run")) // it must fail
		c.Close()
	})
}

func garbage(ports []int) int {
	return each(ports, func(c net.Conn) {
		_, _ = c.Write([]byte(strings.Repeat("\xff\x00GET / HTTP/1.1\r\n", 100))) // it may be cut off
		c.Close()
	})
}

// loris holds connections open and sends a byte now and then.
func loris(ports []int, over <-chan struct{}) int {
	var kept []net.Conn
	n := each(ports, func(c net.Conn) { kept = append(kept, c) })
	for _, c := range kept {
		_, _ = c.Write([]byte("m")) // it may be cut off
	}
	select {
	case <-over:
	case <-time.After(300 * time.Millisecond):
	}
	for _, c := range kept {
		c.Close()
	}
	return n
}

// Claim (docs/failures.md): SIGTERM or SIGUSR1 to one rank of eight, or to all
// and the launcher at once, whatever they are at, ends all at the next step boundary, saved, with 75; the same
// command continues from there to the same numbers.
func signalInAnyPhase(l *launching) {
	t := l.t
	phases := map[string]syscall.Signal{"eval:step=4": syscall.SIGUSR1, "save:step=4": syscall.SIGTERM, "startup:step=0": syscall.SIGTERM}
	if os.Getenv("SIGNALS") != "all" { // the rest in tests/proofs/failures
		delete(phases, "save:step=4")
	}
	l.must("pretrain_gpt " + eight + "--train-iters 12 --world-size 8 --log-jsonl whole.jsonl")
	full := l.numbers("whole.jsonl")
	for phase, s := range phases {
		name := phase[:4]
		line := fmt.Sprintf("launch --nproc-per-node 8 --run-folder rf%s -- pretrain_gpt %s--train-iters 12 --save %s --load %s --save-interval 4 --log-jsonl ", name, eight, name, name)
		cmd, notes := l.command(line + name + "1.jsonl --inject sleep:rank=2:seconds=2:phase=" + phase)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		pids := l.inPhase(cmd.Process.Pid, "rf"+name, 2, phase[:4])
		to := []int{pids[5]}
		if name == "star" { // as a batch system does: to all, and the launcher passes it on
			to = append([]int{cmd.Process.Pid}, slices.Collect(maps.Values(pids))...)
		}
		for _, pid := range to {
			if err := syscall.Kill(pid, s); err != nil {
				t.Error(err)
			}
		}
		_ = cmd.Wait() // its code says it
		if code := cmd.ProcessState.ExitCode(); code != 75 {
			t.Fatalf("%s: code %d: %s", phase, code, notes)
		}
		gone(t, pids)
		l.must(line + name + "2.jsonl")
		if rest := l.numbers(name + "2.jsonl"); rest == "" || !strings.HasSuffix(full, rest) {
			t.Errorf("%s: it went on with\n%s\nwant the end of\n%s", phase, rest, full)
		}
	}
}
