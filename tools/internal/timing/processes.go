package timing

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm/process"
)

// Bytes are the sizes that are timed.
var Bytes = []float64{64 << 20, 4 << 10}

// Way is one way for two processes to sum.
type Way struct {
	Name, Transport string
	Fast            bool // Gloo's own sum
}

// RoleVariable has address, rank, ranks and way of a process that Way.Time has started;
// it is passed on with MONOTRON_SECRET.
const RoleVariable = "MONOTRON_BENCH_RANK"

// Time starts so many processes and gives their seconds for each of Bytes.
func (w Way) Time(ctx context.Context, device string, world int) ([]float64, error) {
	addr, err := rendezvous.FreeAddr()
	if err != nil {
		return nil, err
	}
	secret := launchenv.NewSecret()
	// A process a rank; ranks of torch run its own script.
	ranks, said := make([]*exec.Cmd, world), make([]strings.Builder, world)
	for rank := range ranks {
		cmd, err := Again(ctx, "bench", "comm", "--device", device, "--cpu-threads", "1")
		if err != nil {
			return nil, err
		}
		if w.Transport == "torch" {
			cmd = Child(ctx, os.Getenv("PYTHON"), "-c", torchScript, addr, strconv.Itoa(rank))
		}
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %d %v", RoleVariable, addr, rank, world, w.Fast), "MONOTRON_TRANSPORTS="+w.Transport, "MONOTRON_SECRET="+secret)
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
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &times); err != nil || len(times) != len(Bytes) {
		return nil, fmt.Errorf("rank 0 must print a list of %d times, but printed %q", len(Bytes), lines[len(lines)-1])
	}
	return times, nil
}

// Rank is one of the processes that Way.Time starts: role is the value of RoleVariable.
func Rank(role string, out io.Writer, open func() (*device.Device, error)) error {
	// role: address of the rendezvous, rank, ranks, and whether sums use the fast path.
	var addr string
	var rank, world int
	var fast bool
	if _, err := fmt.Sscan(role, &addr, &rank, &world, &fast); err != nil {
		return exitcode.Errorf(exitcode.Usage, "%s=%q: %w", RoleVariable, role, err)
	}
	// One thread a rank: the threads of several ranks would share processors.
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
	d, err := open()
	if err != nil {
		return p.End(err)
	}
	defer d.Close()
	// Seconds of a message of each size, as one JSON list on `out`, which the parent reads.
	var times []float64
	for _, bytes := range Bytes {
		took, err := p.Bench(d, int64(bytes), 2*time.Second)
		if err != nil {
			return p.End(err)
		}
		times = append(times, took.Seconds())
	}
	text, err := json.Marshal(times)
	if err == nil {
		_, err = fmt.Fprintf(out, "%s\n", text)
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
