package health

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"monotron/internal/system"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
)

// TestLoad runs rank 0 of a large run as a process of its own and has as many others as the run has join it, beat and
// hear its verdict, by the protocol of ranks, eight to a host. MONOTRON_LOAD_RANKS and MONOTRON_LOAD_FAULTS say how
// many ranks, and what happens to one of them (tests/proofs/scale/ranks.sh). With MONOTRON_LOAD_LIMITS the limits of
// time and memory are checked too: how long it takes depends on what else a machine does.
func TestLoad(t *testing.T) {
	if testing.Short() {
		t.Skip("a thousand ranks: not with -short")
	}
	world, faults := 1000, "closed"
	if text := os.Getenv("MONOTRON_LOAD_RANKS"); text != "" {
		world, _ = strconv.Atoi(text)
	}
	if text := os.Getenv("MONOTRON_LOAD_FAULTS"); text != "" {
		faults = text
	}
	if files, known := system.OpenFiles(); known && files < uint64(world/perHost)+200 {
		t.Skipf("%d ranks need an open file for each host, and a process may have %d (ulimit -n)", world, files)
	}
	for _, fault := range strings.Fields(faults) {
		t.Run(fault, func(t *testing.T) { load(t, world, fault) })
	}
}

// perHost is how many ranks a host has.
const perHost = 8

// What a run of 10,000 ranks may take.
const (
	mostMeeting = 30 * time.Second
	mostVerdict = 30 * time.Second
	mostMemory  = 1 << 30 // of rank 0
	// mostProcessor is what rank 0 may take from the meeting to the verdict, of 16,384 ranks. It does not grow while
	// rank 0 waits for a processor, so that it says what rank 0 does where others take most of the time.
	mostProcessor = 3 * time.Second
)

// loadFaults are what happens: to which of the two ranks of a host that are processes, and what the verdict says of it.
var loadFaults = map[string]struct {
	relays bool // it is the rank that connects the other to rank 0
	kind   failure.Kind
	says   string
}{
	"closed":       {false, failure.Death, "died: its connection was lost; at its last heartbeat it was in the forward pass of step 5"},
	"silent":       {false, failure.Silence, "has not responded for 2"},
	"half-open":    {true, failure.Silence, "it is stopped, or its host or network failed; it was also the relay of other ranks of its host (1)"},
	"stalled":      {false, failure.Stall, "never entered all_reduce(sum) of 8 f32 #40 of world group 0"},
	"relay-closed": {true, failure.Death, "died: its connection was lost; at its last heartbeat it was in the forward pass of step 5; it was also the relay of other ranks of its host (1)"},
	"mismatch":     {false, failure.Mismatch, "differs: its call #40 is all_reduce(sum) of 7 f32, but that of the other ranks is all_reduce(sum) of 8 f32"},
	"relay-silent": {true, failure.Silence, "it is stopped, or its host or network failed; it was also the relay of other ranks of its host (1)"},
}

// Claim (docs/failures.md): so many ranks meet, beat, and all hear one verdict that names the rank that was killed
// or stopped, whose host was cut off, or that does not enter a collective; also where it is the one that connects others.
// Rank 0 has a connection for each host, not for each rank.
func load(t *testing.T, world int, fault string) {
	expected, known := loadFaults[fault]
	if !known {
		t.Fatalf("there is no fault %q", fault)
	}
	// The ranks: 0 and two of a host are processes of this program, the others connections of this one, one for each host.
	addr, prefix, cut := "127.0.0.1", []string(nil), func() {}
	if fault == "half-open" {
		addr, prefix, cut = cutOff(t)
	}
	l, err := net.Listen("tcp", addr+":0")
	if err != nil {
		t.Fatal(err)
	}
	addr = l.Addr().String()
	l.Close() // rank 0 takes the port
	began, relays := time.Now(), world/3
	first, relay, relayed := startLoad(t, nil, 0, world, addr), startLoad(t, prefix, relays, world, addr), startLoad(t, prefix, relays+1, world, addr)
	h := newSimulated(world, addr, relays)
	defer h.close()
	// They meet.
	met := first.next(t)
	slowest, err := h.met()
	if err != nil {
		t.Fatal(err)
	}
	meeting := time.Since(began)
	relay.next(t)
	relayed.next(t)
	t.Logf("%d ranks met in %.1f s; rank 0: %s", world, meeting.Seconds(), met)
	t.Logf("the slowest to connect: rank %d after %.1f s; it connected %d times; the last failure: %v", slowest.ranks[0], slowest.ready.Seconds(), slowest.tries, slowest.why)
	go h.beat()
	time.Sleep(5 * time.Second)
	// One comes to harm.
	victim, rank := relayed, relays+1
	if expected.relays {
		victim, rank = relay, relays
	}
	began = time.Now()
	switch strings.TrimPrefix(fault, "relay-") {
	case "closed":
		_ = victim.cmd.Process.Kill() // the verdict shows it
	case "silent":
		_ = victim.cmd.Process.Signal(syscall.SIGSTOP) // the verdict shows it
	case "half-open":
		cut()
	case "stalled":
		for _, p := range []*loadProcess{first, relay, victim} {
			fmt.Fprintln(p.in, "stall")
		}
		h.stalls.Store(true)
	case "mismatch":
		h.prepare()
		began = time.Now()
		fmt.Fprintln(victim.in, "differ")
	}
	end := first.next(t)
	verdict := time.Since(began)
	took := time.Duration((end.Processor - met.Processor) * float64(time.Second))
	t.Logf("%s: verdict after %.1f s: %.300s; rank 0: %s", fault, verdict.Seconds(), end.Verdict.Text, end)
	t.Logf("since they met rank 0 took %.2f s of a processor in %.1f s, %.1f µs for each of %d heartbeats", took.Seconds(), end.Seconds-met.Seconds, 1e6*took.Seconds()/float64(max(1, end.Heard)), end.Heard)
	if v := end.Verdict; v.Rank != rank || v.Kind != expected.kind || !strings.Contains(v.Text, expected.says) || v.Host == "" {
		t.Errorf("rank %d of host %q, %v: %s", v.Rank, v.Host, v.Kind, v.Text)
	}
	if most := (world+perHost-1)/perHost + 40; end.Files > most {
		t.Errorf("rank 0 has %d open files, of %d hosts", end.Files, world/perHost)
	}
	h.heard(t)
	// What all that may take.
	if os.Getenv("MONOTRON_LOAD_LIMITS") == "" {
		return
	}
	if most := mostProcessor * time.Duration(max(world, 4096)) / 16384; meeting > mostMeeting || verdict > mostVerdict || end.Peak > mostMemory || took > most {
		t.Errorf("that is more than %v to meet, %v to the verdict, %d bytes and %v of a processor of rank 0", mostMeeting, mostVerdict, mostMemory, most)
	}
}

// loadProcess is a rank that is a process.
type loadProcess struct {
	cmd   *exec.Cmd
	in    io.Writer
	lines *bufio.Scanner
}

// loadReport is what it says of itself.
type loadReport struct {
	Seconds, Processor float64 // since its start
	Peak               int64   // bytes of memory
	Files              int     // open
	Heard              int64   // heartbeats
	Verdict            *failure.Verdict
}

func (r *loadReport) String() string {
	return fmt.Sprintf("%.1f s of a processor in %.1f s, at most %d MB of memory, %d open files", r.Processor, r.Seconds, r.Peak>>20, r.Files)
}

const loadLine = "load: "

// startLoad starts this test's program as a rank.
func startLoad(t *testing.T, prefix []string, rank, world int, addr string) *loadProcess {
	t.Helper()
	words := append(prefix, os.Args[0], "-test.run=^TestLoadProcess$", "-test.timeout=0")
	p := &loadProcess{cmd: exec.Command(words[0], words[1:]...)}
	p.cmd.Env = append(os.Environ(), fmt.Sprintf("MONOTRON_LOAD_RANK=%d %d %s", rank, world, addr))
	p.cmd.Stderr = os.Stderr
	in, err1 := p.cmd.StdinPipe()
	out, err2 := p.cmd.StdoutPipe()
	if err := errors.Join(err1, err2, p.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = p.cmd.Process.Kill(), p.cmd.Wait() })
	p.in, p.lines = in, bufio.NewScanner(out)
	p.lines.Buffer(nil, 1<<20)
	return p
}

// next is what it says next.
func (p *loadProcess) next(t *testing.T) *loadReport {
	t.Helper()
	for p.lines.Scan() {
		if text, is := strings.CutPrefix(p.lines.Text(), loadLine); is {
			r := &loadReport{}
			if err := json.Unmarshal([]byte(text), r); err != nil {
				t.Fatal(err)
			}
			return r
		}
	}
	t.Fatalf("a rank has ended: %v", p.lines.Err())
	return nil
}

// TestLoadProcess is a rank of TestLoad.
func TestLoadProcess(t *testing.T) {
	var rank, world int
	var addr string
	if _, err := fmt.Sscan(os.Getenv("MONOTRON_LOAD_RANK"), &rank, &world, &addr); err != nil {
		t.Skip("TestLoad starts it")
	}
	began := time.Now()
	if rank == world/3+1 { // the rank before it connects it
		for name := rendezvous.LocalName(loadSecret, addr); name != ""; time.Sleep(50 * time.Millisecond) {
			if c, err := net.Dial("unix", name); err == nil {
				c.Close() // the other is there
				break
			}
		}
	}
	s, err := rendezvous.Join(t.Context(), rendezvous.Config{Rank: rank, World: world, Addr: addr, Secret: loadSecret, Data: ":1"})
	if err != nil {
		t.Fatal(err)
	}
	var heard atomic.Int64
	var w *Watcher
	if rank == 0 {
		w = NewWatcher(world, Settings{Limit: 15 * time.Second}, s.Ask, func(v *failure.Verdict) { _ = s.Judge(v) })
		defer w.Close()
		s.Hear(func(rank int, sent []byte) {
			w.Hear(rank, sent)
			heard.Add(1)
		})
	}
	var stalls atomic.Bool
	s.Speak(func() (string, []byte) {
		return At(Forward, 5), loadMessage(rank, world, stalls.Load() && rank != world/3+1, stalls.Load(), true)
	}, func() {
		_ = s.Tell(loadReported(rank, world)) // the run has ended otherwise
	})
	tell := func(v *failure.Verdict) {
		files, _ := os.ReadDir("/proc/self/fd")
		processor, _ := system.Usage()
		peak, _, _ := strings.Cut(strings.TrimSpace(system.Field("/proc/self/status", "VmHWM")), " ")
		kib, _ := strconv.ParseInt(peak, 10, 64)
		text, _ := json.Marshal(&loadReport{time.Since(began).Seconds(), processor.Seconds(), kib << 10, len(files), heard.Load(), v})
		fmt.Printf("%s%s\n", loadLine, text)
	}
	tell(nil)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			if in.Text() == "differ" {
				at := comm.Call{Group: "g0", Seq: 40, Rank: rank - 1, Members: []int{rank - 1, rank}, Op: comm.AllReduce, Reduce: comm.Sum, Root: -1, Count: 8}
				mine := at
				mine.Rank, mine.Count = rank, 7
				_ = s.Fail(comm.Differ(&at, &mine)) // all hear it
			}
			stalls.Store(true)
		}
	}()
	<-s.Lost()
	var v *failure.Verdict
	if errors.As(s.Err(), &v) {
		if v.Kind == failure.Mismatch {
			_ = s.Tell(loadReported(rank, world)) // as a rank does that ends so
		}
		if v.Kind == failure.Mismatch && w != nil {
			v = w.Verdict(v)
		}
		tell(v)
	}
	_ = s.Close() // the verdict is printed
}

var loadSecret = []byte("of a test of load")

// simulated is the ranks that are connections, one for each host: they keep nothing of the list of all, which each of so
// many would have, and say every second what they have said before.
type simulated struct {
	world   int
	addr    string
	ends    chan struct{}
	stalls  atomic.Bool
	reports atomic.Bool // when they hear the verdict
	hosts   []*simulatedHost
	joined  sync.WaitGroup
	reading sync.WaitGroup
}

// simulatedHost is one of them, as the rank that connects those of its host to rank 0.
type simulatedHost struct {
	ranks []int
	last  [][]byte // its ranks' reports, as they travel
	conn  net.Conn
	err   error
	judged,
	counted bool

	// Of the slowest, to see what it has waited for.
	began time.Time
	ready time.Duration // until its last connection was made
	tries int
	why   error // of the last connection that was made again
}

// newSimulated has all ranks join but 0 and the two that are processes.
func newSimulated(world int, addr string, but int) *simulated {
	h := &simulated{world: world, addr: addr, ends: make(chan struct{})}
	var ranks []int
	for rank := 1; rank < world; rank++ {
		if rank != but && rank != but+1 {
			ranks = append(ranks, rank)
		}
	}
	for ranks := range slices.Chunk(ranks, perHost) {
		a := &simulatedHost{ranks: ranks}
		h.hosts = append(h.hosts, a)
		h.joined.Add(1)
		h.reading.Go(func() {
			a.err = h.live(a)
			if !a.counted {
				h.joined.Done()
			}
		})
	}
	return h
}

// live is a host from its start to the verdict. As rendezvous.Join does, it connects again until rank 0 is there, and
// after its connection has been dropped among too many.
func (h *simulated) live(a *simulatedHost) (err error) {
	a.began = time.Now()
	var pauses rendezvous.Backoff
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(pauses.Next()) {
		a.tries++
		if a.conn, err = net.DialTimeout("tcp", h.addr, rendezvous.DialTime); err != nil {
			a.why = err
			continue
		}
		if err = rendezvous.Call(a.conn, loadSecret); err == nil {
			a.ready = time.Since(a.began)
			err = h.join(a)
		}
		if err == nil {
			err = h.read(a)
		}
		if err == nil || a.counted {
			return err
		}
		a.why = fmt.Errorf("after %v: %w", time.Since(a.began).Round(time.Millisecond), err)
		a.conn.Close() // it is made again
	}
	return err
}

// join says which ranks a host has.
func (h *simulated) join(a *simulatedHost) error {
	for seat, rank := range a.ranks {
		m := &rendezvous.Member{Rank: rank, World: h.world, Addr: "127.0.0.1:1", Host: fmt.Sprint("host", a.ranks[0]), PID: os.Getpid(), Called: "rank"}
		if err := a.send(rendezvous.JoinFrame(seat, m)); err != nil {
			return err
		}
	}
	return nil
}

func (a *simulatedHost) send(frame []byte) error {
	if err := a.conn.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	_, err := a.conn.Write(frame)
	return err
}

// read reads until the verdict. Of each message only the beginning is kept, where its kind is.
func (h *simulated) read(a *simulatedHost) error {
	for {
		var head [4 + 24]byte
		if _, err := io.ReadFull(a.conn, head[:4]); err != nil {
			return err
		}
		n := int64(binary.BigEndian.Uint32(head[:4]))
		short := head[4 : 4+min(n, 24)]
		if _, err := io.ReadFull(a.conn, short); err != nil {
			return err
		}
		if _, err := io.CopyN(io.Discard, a.conn, n-int64(len(short))); err != nil {
			return err
		}
		switch {
		case bytes.HasPrefix(short, []byte(`{"Kind":"joined"`)) && !a.counted:
			a.counted = true
			h.joined.Done()
		case bytes.HasPrefix(short, []byte(`{"Kind":"verdict"`)):
			a.judged = true
			if h.reports.Load() {
				for _, frame := range a.last {
					_ = a.send(frame) // rank 0's verdict misses it
				}
			}
			return nil
		}
	}
}

// met waits until all have the list of all ranks, and gives the one whose last connection was made last.
func (h *simulated) met() (slowest *simulatedHost, err error) {
	h.joined.Wait()
	for _, a := range h.hosts {
		if !a.counted || a.judged {
			return nil, fmt.Errorf("rank %d has not met the others: %v", a.ranks[0], a.err)
		}
		if slowest == nil || a.ready > slowest.ready {
			slowest = a
		}
	}
	return slowest, nil
}

// beat has all ranks beat once a second; the first time they say their groups.
func (h *simulated) beat() {
	frame := func(a *simulatedHost, waits, idle, hello bool) []byte {
		var beats []rendezvous.Beat
		for seat, rank := range a.ranks {
			beats = append(beats, rendezvous.Beat{Seat: seat, At: []byte(At(Forward, 5)), Report: loadMessage(rank, h.world, waits, idle, hello)})
		}
		return rendezvous.BeatsFrame(beats)
	}
	calm, waiting := make([][]byte, len(h.hosts)), make([][]byte, len(h.hosts))
	for i, a := range h.hosts {
		_ = a.send(frame(a, false, false, true)) // read notices
		calm[i], waiting[i] = frame(a, false, false, false), frame(a, true, true, false)
	}
	for tick := time.NewTicker(beatEvery); ; {
		for i, a := range h.hosts {
			sent := calm[i]
			if h.stalls.Load() {
				sent = waiting[i]
			}
			_ = a.send(sent) // read notices
		}
		select {
		case <-h.ends:
			tick.Stop()
			return
		case <-tick.C:
		}
	}
}

// prepare has all ranks report when they hear the verdict.
func (h *simulated) prepare() {
	for _, a := range h.hosts {
		for seat, rank := range a.ranks {
			a.last = append(a.last, rendezvous.ReportFrame(seat, loadReported(rank, h.world)))
		}
	}
	h.reports.Store(true)
}

// heard checks that all ranks have the verdict.
func (h *simulated) heard(t *testing.T) {
	t.Helper()
	h.reading.Wait()
	for _, a := range h.hosts {
		if !a.judged {
			t.Fatalf("rank %d has not heard the verdict: %v", a.ranks[0], a.err)
		}
	}
}

func (h *simulated) close() {
	close(h.ends)
	for _, a := range h.hosts {
		if a.conn != nil {
			a.conn.Close() // nothing more is wanted of it
		}
	}
}

// cutOff makes a host that is a network namespace: the address of this one as both reach it, what starts a command
// there, and what cuts its link, or skips.
func cutOff(t *testing.T) (addr string, prefix []string, cut func()) {
	t.Helper()
	id := strconv.Itoa(os.Getpid() % 100000)
	name, link := "mtload"+id, "mtl"+id
	ip := func(line string) {
		t.Helper()
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Skipf("network namespaces are not permitted here: ip %s: %v: %s", line, err, out)
		}
	}
	ip("netns add " + name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	ip("link add " + link + " type veth peer name eth0 netns " + name)
	ip("addr add 10.99.6.1/24 dev " + link)
	ip("link set " + link + " up")
	ip("-n " + name + " addr add 10.99.6.2/24 dev eth0")
	ip("-n " + name + " link set eth0 up")
	return "10.99.6.1", []string{"ip", "netns", "exec", name}, func() { ip("-n " + name + " link set eth0 down") }
}
