package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"time"
	"unsafe"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/bootstrap/preflight"
	"monotron/mpu/comm"
	"monotron/mpu/comm/process"
)

// hostsReport is what the ranks of several hosts have found out about each other.
type hostsReport struct {
	*preflight.Report
	Names []string    `json:"names"`
	Speed [][]float64 `json:"bytes_per_second"` // from the host of the row to that of the column; 0: not measured
	Trial *trained    `json:"trial"`
}

const (
	hostProbe = 16 << 20        // bytes of a message between two hosts
	hostsWait = 2 * time.Minute // for all to come
	mostHosts = 32              // every pair is measured up to so many; beyond, neighbours
)

// examineHosts is doctor --hosts: this process is one rank of those that a launcher
// has started. Rank 0 writes what all have found.
func examineHosts(ctx context.Context, open func(string) (*device.Device, error), out io.Writer, asJSON bool) error {
	env, err := launchenv.Find(os.Getenv)
	if err != nil {
		return err
	}
	if env == nil {
		return exitcode.Errorf(exitcode.Usage, "doctor --hosts must run on all hosts at once; start it with monotron launch --hostfile FILE -- doctor --hosts, or with srun, mpirun or torchrun")
	}
	// All ranks meet as a run's do.
	p, err := preflight.Meet(ctx, env, map[string]string{}, hostsWait, logging.Stderr().From("rendezvous").Lines())
	if err != nil {
		return err
	}
	return p.End(func() error {
		// What each sees is gathered; a trial run follows.
		d, err := open("ref")
		if err != nil {
			return err
		}
		defer d.Close()
		r, err := checkHosts(p, d)
		if err != nil {
			return err
		}
		if r.Trial, err = trial(ctx, p, open); err != nil || p.Rank() > 0 {
			return err
		}
		if asJSON {
			encoder := json.NewEncoder(out)
			encoder.SetIndent("", "  ")
			return encoder.Encode(r)
		}
		return r.write(out)
	}())
}

// checkHosts runs the preflight on all ranks and on those of each host, then
// measures between hosts.
func checkHosts(p *process.World, d *device.Device) (*hostsReport, error) {
	var everybody, mine, first []int
	r := &hostsReport{}
	for _, m := range p.Members() {
		everybody = append(everybody, m.Rank)
		if m.Host == p.Members()[p.Rank()].Host {
			mine = append(mine, m.Rank)
		}
		if !slices.Contains(r.Names, m.Host) {
			r.Names, first = append(r.Names, m.Host), append(first, m.Rank)
		}
	}
	world, err := p.Group(p.Rank(), "all ranks", everybody, d)
	if err != nil {
		return nil, err
	}
	host, err := p.Group(p.Rank(), "ranks of a host", mine, d)
	if err != nil {
		return nil, err
	}
	if r.Report, err = preflight.Run(p, d, world, []*comm.Group{host, world}, hostProbe/4); err != nil {
		return nil, err
	}
	return r, r.measure(p, d, world, first)
}

// measure sends between the first ranks of all hosts, one pair after the other.
func (r *hostsReport) measure(p *process.World, d *device.Device, world *comm.Group, first []int) error {
	n := len(first)
	// Every pair of few hosts; of many, each and its neighbour. Others wait at the barrier.
	flat := make([]float64, n*n)
	for a := range n {
		for b := range n {
			if a == b || (n > mostHosts && b != (a+1)%n) {
				continue
			}
			if err := world.Barrier(); err != nil {
				return err
			}
			if p.Rank() != first[a] && p.Rank() != first[b] {
				continue
			}
			speed, err := between(p, d, first[a], first[b])
			if err != nil {
				return err
			}
			if p.Rank() == first[b] {
				flat[a*n+b] = speed
			}
		}
	}
	// Each pair was measured by one rank: the sum has all.
	if n > 1 {
		if err := world.AllReduce(device.View(unsafe.Pointer(&flat[0]), device.F64, int64(len(flat))), comm.Sum).Wait(); err != nil {
			return err
		}
	}
	for a := range n {
		r.Speed = append(r.Speed, flat[a*n:(a+1)*n])
	}
	return nil
}

// between times messages from one rank to another, as the receiver sees them.
func between(p *process.World, d *device.Device, from, to int) (best float64, err error) {
	g, err := p.Group(p.Rank(), "pair", []int{from, to}, d)
	if err != nil {
		return 0, err
	}
	buffer := make([]float32, hostProbe/4)
	t := device.View(unsafe.Pointer(&buffer[0]), device.F32, int64(len(buffer)))
	for range 4 {
		if err := g.Barrier(); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := g.Exchange([]comm.Transfer{{Peer: 1 - g.Rank(), Send: g.Rank() == 0, T: t}}).Wait(); err != nil {
			return 0, err
		}
		best = max(best, hostProbe/time.Since(start).Seconds())
	}
	return best, nil
}

func (r *hostsReport) write(w io.Writer) error {
	p := printer{w: w}
	// Ranks, transports, collectives, the trial.
	p.line("%s on %s: the same program, all can be reached", logging.Count(r.Ranks, "rank"), logging.Count(r.Hosts, "host"))
	p.line("rank 0 sends by %s", r.Transports)
	for _, note := range r.Notes {
		p.line("%-8s %s", Note, note)
	}
	p.line("all-reduce of %d MiB, bytes of a rank's tensor a second:", hostProbe>>22)
	for _, t := range r.Groups {
		p.line("  %-18s %6d ranks  slowest %7.2f GB/s, fastest %7.2f GB/s", t.Kind, t.Ranks, t.Slowest/1e9, t.Fastest/1e9)
	}
	p.line("%s", r.Trial)
	if len(r.Names) == 1 {
		return p.err
	}
	// A matrix of hosts.
	p.line("messages of %d MiB from host to host, GB/s:", hostProbe>>20)
	head := fmt.Sprintf("  %-20s", "from \\ to")
	for i := range r.Names {
		head += fmt.Sprintf(" %6d", i)
	}
	p.line("%s", head)
	for i, name := range r.Names {
		row := fmt.Sprintf("  %-20s", fmt.Sprintf("%d %s", i, name))
		for j := range r.Names {
			if speed := r.Speed[i][j]; speed > 0 {
				row += fmt.Sprintf(" %6.2f", speed/1e9)
			} else {
				row += "      -"
			}
		}
		p.line("%s", row)
	}
	return p.err
}
