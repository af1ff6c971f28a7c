package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm/inproc"
	"monotron/mpu/comm/process"
	"monotron/tools/internal/command"
)

// benchComm times all-reduces among goroutines beside the memory's own speed, then
// among two processes by every transport, beside Gloo's own sums and, where PYTHON has
// torch, torch.distributed's.
func benchComm(c *cli.Context, open func(string) (*device.Device, error)) error {
	// A process that this one has started measures; this one compares.
	if role := os.Getenv(roleVariable); role != "" {
		return benchRank(c, role, open)
	}
	r, out := commResult{}, tableOf(c)
	for _, ranks := range []int{2, 4} {
		s, err := inproc.Bench(func() (*device.Device, error) { return open(c.String("device")) }, ranks, 64<<20, 2*time.Second)
		if err != nil {
			return err
		}
		r.Goroutines = append(r.Goroutines, goroutineTime{s.Ranks, s.Bytes, s.Took.Seconds(), s.Copy, s.Bound.Seconds()})
		out.Printf("%v\n", s)
	}
	// Two processes, by each transport in turn.
	out.Printf("\nall-reduce between 2 processes\n%-28s %10s %10s %10s\n", "", "64 MB", "4 KB", "ratio")
	var gloo float64
	for _, w := range ways() {
		times, err := w.time(c, 2)
		if err != nil {
			r.Processes = append(r.Processes, wayTime{Way: w.name, Failed: err.Error()})
			out.Printf("%-28s %v\n", w.name, err)
			continue
		}
		r.Processes = append(r.Processes, wayTime{Way: w.name, Seconds: times[0], Small: times[1]})
		speed, ratio := commBytes[0]/times[0]/1e9, ""
		switch {
		case w.transport == "torch", w.fast && gloo == 0:
			gloo = max(gloo, speed)
		case gloo > 0:
			ratio = fmt.Sprintf("%.2f", speed/gloo)
		}
		out.Printf("%-28s %5.2f GB/s %7.0f us %10s\n", w.name, speed, times[1]*1e6, ratio)
	}
	out.Printf("ratio at 64 MB: to torch where it is measured, else to Gloo alone; 4 KB: the best, when the other rank's part was there already\n")
	if out.Err == nil && c.Bool("json") {
		out = &command.Printer{W: c.App.Writer}
		out.JSON(r)
	}
	return out.Err
}

// commResult is what `bench comm --json` prints.
type commResult struct {
	Goroutines []goroutineTime `json:"goroutines"`
	Processes  []wayTime       `json:"processes"` // two
}

// goroutineTime is an all-reduce among ranks of one process, f32.
type goroutineTime struct {
	Ranks   int     `json:"ranks"`
	Bytes   int64   `json:"bytes"`
	Seconds float64 `json:"seconds"`
	Copy    float64 `json:"copy_bytes_per_second"`
	Bound   float64 `json:"bound_seconds"` // what must be touched, at that rate
}

// wayTime is an all-reduce between two processes by one way, or why there is none.
type wayTime struct {
	Way     string  `json:"way"`
	Seconds float64 `json:"seconds_64_mb,omitempty"`
	Small   float64 `json:"seconds_4_kb,omitempty"`
	Failed  string  `json:"failed,omitempty"`
}

// commBytes are the sizes that are timed.
var commBytes = []float64{64 << 20, 4 << 10}

// way is one way for two processes to sum.
type way struct {
	name, transport string
	fast            bool // Gloo's own sum
}

// ways has the peers first.
func ways() []way {
	var all []way
	if os.Getenv("PYTHON") != "" {
		all = append(all, way{"torch.distributed, gloo", "torch", false})
	}
	if process.GlooMissing() == nil {
		all = append(all, way{"Gloo's own (--fast-reduce)", "gloo", true}, way{"Gloo, our sum", "gloo", false})
	}
	return append(all, way{"shared memory, our sum", "shm", false}, way{"plain TCP, our sum", "tcp", false})
}

// roleVariable has address, rank, ranks and way of a process that benchComm has started;
// it goes with MONOTRON_SECRET.
const roleVariable = "MONOTRON_BENCH_RANK"

// time starts so many processes and gives their seconds for each of commBytes.
func (w way) time(c *cli.Context, world int) ([]float64, error) {
	addr, err := rendezvous.FreeAddr()
	if err != nil {
		return nil, err
	}
	secret := launchenv.NewSecret()
	// A process a rank; ranks of torch run its own script.
	ranks, said := make([]*exec.Cmd, world), make([]strings.Builder, world)
	for rank := range ranks {
		cmd, err := again(c.Context, "bench", "comm", "--device", c.String("device"), "--cpu-threads", "1")
		if err != nil {
			return nil, err
		}
		if w.transport == "torch" {
			cmd = child(c.Context, os.Getenv("PYTHON"), "-c", torchScript, addr, strconv.Itoa(rank))
		}
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %v", roleVariable, addr, rank, world, w.fast), "MONOTRON_TRANSPORTS="+w.transport, "MONOTRON_SECRET="+secret)
		cmd.Stdout, cmd.Stderr = &said[rank], &said[rank]
		if err := cmd.Start(); err != nil {
			return nil, exitcode.With(exitcode.NoInput, err)
		}
		ranks[rank] = cmd
	}
	// All must end well; rank 0 prints the seconds.
	err = nil
	for rank, cmd := range ranks {
		if bad := cmd.Wait(); bad != nil && err == nil {
			lines := strings.Split(strings.TrimSpace(said[rank].String()), "\n")
			err = fmt.Errorf("%w: %s", bad, lines[len(lines)-1])
		}
	}
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSpace(said[0].String()), "\n")
	var times []float64
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &times); err != nil || len(times) != len(commBytes) {
		return nil, fmt.Errorf("it said %q", lines[len(lines)-1])
	}
	return times, nil
}

// benchRank is one of the processes.
func benchRank(c *cli.Context, role string, open func(string) (*device.Device, error)) error {
	var addr string
	var rank, world int
	var fast bool
	if _, err := fmt.Sscan(role, &addr, &rank, &world, &fast); err != nil {
		return exitcode.Errorf(exitcode.Usage, "%s=%q: %w", roleVariable, role, err)
	}
	device.SetThreads(1)
	p, err := process.Join(context.Background(), rendezvous.Config{Rank: rank, World: world, Addr: addr, Secret: []byte(os.Getenv("MONOTRON_SECRET")), Timeout: time.Minute}, time.Minute)
	if err != nil {
		return err
	}
	if fast {
		if err := p.FastReduce(); err != nil {
			return p.End(err)
		}
	}
	d, err := open(c.String("device"))
	if err != nil {
		return p.End(err)
	}
	defer d.Close()
	var times []float64
	for _, bytes := range commBytes {
		took, err := p.Bench(d, int64(bytes), 2*time.Second)
		if err != nil {
			return p.End(err)
		}
		times = append(times, took.Seconds())
	}
	text, err := json.Marshal(times)
	if err == nil {
		_, err = fmt.Fprintf(c.App.Writer, "%s\n", text)
	}
	return p.End(err)
}

// torchScript does the same by torch.distributed.
const torchScript = `
import sys, time, json, torch, torch.distributed as dist
torch.set_num_threads(1)
rank = int(sys.argv[2])
dist.init_process_group("gloo", init_method="tcp://" + sys.argv[1], rank=rank, world_size=2)
times = []
for size in (64 << 20, 4 << 10):
    x = torch.zeros(size // 4)
    best, end, n = 1e9, time.time() + 2, 0
    more = torch.ones(1)
    while more.item() > 0:
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(x)
        best, n = min(best, time.perf_counter() - start), n + 1
        more.fill_(float(n < 4 or time.time() < end))
        dist.broadcast(more, 0)
    times.append(best)
if rank == 0:
    print(json.dumps(times))
dist.destroy_process_group()
`
