// Package preflight checks, before the first step, what a run of processes would
// otherwise fail on later: the same program everywhere, clocks, space in shared
// memory, a way from every rank to those it will talk to, and a small all-reduce on
// every group, checked and timed.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm"
	"monotron/mpu/comm/process"
)

// probe is the usual size of the all-reduce that is timed, in bytes; between GPUs, whose
// libraries take other ways, and the memory for them, for large messages.
const (
	probe     = 1 << 20
	probeGPUs = 8 << 20
)

// Size is how many bytes are summed and sent between such devices.
func Size(d *device.Device) int64 {
	if d.Streams() != nil {
		return probeGPUs
	}
	return probe
}

// Report is what rank 0 learns; on the other ranks only Took and Transports are set.
type Report struct {
	Ranks, Hosts int
	Groups       []Timing // of every kind of group, in the order given
	Transports   string   // how rank 0 sends to those it talks to
	Placing      []string // a line a host and kind of device there: the ranks that have it
	Notes        []string // what does not stop the run, each with its cure
	Took         time.Duration
}

// Timing is how fast groups of one kind summed: bytes of a tensor a second.
type Timing struct {
	Kind    string
	Ranks   int // of a group
	Slowest float64
	Fastest float64
	Where   int // a rank of the slowest group
}

// A rank sends rank 0, all float64: its clock, its space in shared memory, then the
// speed of each group, 0 where it is alone; in a message of its own, its device.
const (
	ofRank     = 2
	deviceText = 128 // bytes, eight a number
)

// Run checks the run. World has all ranks; groups are this rank's, of the same
// kinds in the same order on all ranks. The error names what is wrong and the cure.
func Run(p *process.World, d *device.Device, world *comm.Group, groups []*comm.Group, bytes int64) (*Report, error) {
	began := time.Now()
	// The speed of every group, and whether its members reach each other.
	mine := make([]float64, ofRank+len(groups))
	var err error
	for i, g := range groups {
		if g.Size() == 1 {
			continue
		}
		if mine[ofRank+i], err = Speed(d, g, bytes); err != nil {
			return nil, err
		}
		if err = neighbours(d, g, bytes); err != nil {
			return nil, err
		}
	}
	// Behind a barrier the clocks of all ranks should agree, but for its own duration.
	if err := world.Barrier(); err != nil {
		return nil, err
	}
	mine[0], mine[1] = float64(time.Now().UnixMicro()), float64(sharedSpace())
	all, err := gather(d, world, mine)
	if err != nil {
		return nil, err
	}
	// Every rank's device, as text of one length.
	text := make([]int64, deviceText/8)
	copy(device.AsBytes(text), d.Name+": "+d.Describe()) // cut where it is longer
	devices, err := gather(d, world, text)
	if err != nil {
		return nil, err
	}
	// Rank 0 judges for all.
	r := &Report{Ranks: p.Size(), Transports: p.Transports()}
	if world.Rank() == 0 {
		r.judge(p, all, groups)
		r.Placing = placing(p.Members(), device.AsBytes(devices))
	}
	r.Took = time.Since(began)
	return r, nil
}

// gather brings everybody's numbers to rank 0, in rank order; the others get none.
func gather[T float64 | int64](d *device.Device, world *comm.Group, mine []T) ([]T, error) {
	kind := device.F64
	if _, integers := any(mine).([]int64); integers {
		kind = device.I64
	}
	in := d.Arena.Alloc(device.Communication, kind, int64(len(mine)))
	defer d.Arena.Free(in)
	d.Write(in, device.AsBytes(mine))
	if world.Rank() > 0 {
		return nil, world.Gather(device.Tensor{}, in, 0).Wait()
	}
	out := d.Arena.Alloc(device.Communication, kind, int64(len(mine)*world.Size()))
	defer d.Arena.Free(out)
	if err := world.Gather(out, in, 0).Wait(); err != nil {
		return nil, err
	}
	return device.ReadSlice[T](d, out), d.Err()
}

// Speed sums `bytes` in a group three times and gives the best, in bytes a second.
// A wrong sum is an error.
func Speed(d *device.Device, g *comm.Group, bytes int64) (best float64, err error) {
	t := d.Arena.Alloc(device.Communication, device.F32, bytes/4)
	defer d.Arena.Free(t)
	values := make([]float32, bytes/4)
	want := float32(g.Size() * (g.Size() + 1) / 2)
	for range 3 {
		for i := range values {
			values[i] = float32(g.Rank()+1) * float32(i%7)
		}
		d.Write(t, device.AsBytes(values))
		if err := g.Barrier(); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := errors.Join(g.AllReduce(t, comm.Sum).Wait(), d.Sync()); err != nil {
			return 0, err
		}
		best = max(best, float64(bytes)/max(time.Since(start).Seconds(), 1e-9))
		d.Read(device.AsBytes(values), t)
		for i, v := range values {
			if v != want*float32(i%7) {
				return 0, exitcode.Errorf(exitcode.Internal, "group %s: a small all-reduce gave %g instead of %g: the memory, network or program of one of its hosts is damaged; test the hosts in pairs (doctor --hosts)", g.Name(), v, want*float32(i%7))
			}
		}
	}
	return best, d.Err()
}

// neighbours sends a message to the next rank of a group and takes the one of the rank
// before, so that ways and memory for messages are there, or missed, before step 1. A message
// that comes wrong is an error.
func neighbours(d *device.Device, g *comm.Group, bytes int64) error {
	both := d.Arena.Alloc(device.Communication, device.F32, 2, bytes/8) // as much as the sum has taken
	defer d.Arena.Free(both)
	out, in := both.Slice(0, 0, 1).Reshape(bytes/8), both.Slice(0, 1, 1).Reshape(bytes/8)
	n, from := g.Size(), (g.Rank()+g.Size()-1)%g.Size()
	d.Fill(out, float64(g.Rank()+1))
	err := g.Exchange([]comm.Transfer{{Peer: (g.Rank() + 1) % n, Send: true, T: out}, {Peer: from, T: in}}).Wait()
	if err != nil {
		return err
	}
	for _, v := range device.ReadSlice[float32](d, in) {
		if v != float32(from+1) {
			return exitcode.Errorf(exitcode.Internal, "group %s: a message from rank %d of the group contained %g instead of %d: the memory, network or program of one of the hosts is damaged; test the hosts in pairs (doctor --hosts)", g.Name(), from, v, from+1)
		}
	}
	return d.Err()
}

// Limits beyond which a rank's host is noted.
const (
	clockOff   = 2 * time.Second
	sharedLeft = 64 << 20
	laggard    = 4 // a group so many times slower than the fastest of its kind
)

// judge makes rank 0's report of all ranks' numbers.
func (r *Report) judge(p *process.World, all []float64, groups []*comm.Group) {
	members, each := p.Members(), len(all)/p.Size()
	var hosts []string
	for rank, m := range members {
		mine := all[rank*each : (rank+1)*each]
		if slices.Contains(hosts, m.Host) {
			continue // its first rank has reported
		}
		hosts = append(hosts, m.Host)
		if off := time.Duration(mine[0]-all[0]) * time.Microsecond; off.Abs() > clockOff {
			r.note("the clock of %s differs by %v from that of %s: times in logs and checkpoints will be inconsistent; synchronize the clocks with NTP (timedatectl set-ntp true)",
				m.Host, off.Round(100*time.Millisecond), members[0].Host)
		}
		if mine[1] >= 0 && mine[1] < sharedLeft {
			r.note("/dev/shm of %s has only %.0f MiB free, so its ranks may use a slower transport; enlarge it with mount -o remount,size=1G /dev/shm, or for a container with --shm-size=1g", m.Host, mine[1]/(1<<20))
		}
	}
	r.Hosts = len(hosts)
	for i, g := range groups {
		if g.Size() > 1 {
			r.timing(g, i, all, each)
		}
	}
}

// clashesShown is how many hosts, or devices of hosts, are listed one by one.
const clashesShown = 32

// placing says which ranks each host has, and on what device; devices has deviceText
// bytes a rank.
func placing(members []rendezvous.Member, devices []byte) (lines []string) {
	type hostDevice struct{ host, device string }
	var owners []hostDevice
	ranks := map[hostDevice][]string{}
	for rank, m := range members {
		text, _, _ := strings.Cut(string(devices[rank*deviceText:(rank+1)*deviceText]), "\x00")
		at := hostDevice{m.Host, strings.ToValidUTF8(text, "")}
		if ranks[at] == nil {
			owners = append(owners, at)
		}
		ranks[at] = append(ranks[at], strconv.Itoa(rank))
	}
	for _, at := range owners[:min(len(owners), clashesShown)] {
		lines = append(lines, fmt.Sprintf("%s: %s (%s) on %s", at.host, logging.Count(len(ranks[at]), "rank"), strings.Join(ranks[at], " "), at.device))
	}
	if more := len(owners) - clashesShown; more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more lines like these", more))
	}
	return lines
}

func (r *Report) timing(g *comm.Group, i int, all []float64, each int) {
	t := Timing{Kind: g.Name(), Ranks: g.Size()}
	for rank := range len(all) / each {
		speed := all[rank*each+ofRank+i]
		if speed == 0 {
			continue
		}
		if t.Slowest == 0 || speed < t.Slowest {
			t.Slowest, t.Where = speed, rank
		}
		t.Fastest = max(t.Fastest, speed)
	}
	r.Groups = append(r.Groups, t)
	if t.Slowest*laggard < t.Fastest && r.Hosts > 1 {
		r.note("the %s group of rank %d reduces %.2f GB/s, but the fastest group reduces %.2f GB/s; check the network of that host (doctor --hosts)", t.Kind, t.Where, t.Slowest/1e9, t.Fastest/1e9)
	}
}

func (r *Report) note(format string, a ...any) { r.Notes = append(r.Notes, fmt.Sprintf(format, a...)) }

// Write says it in a line, and one for each note.
func (r *Report) Write(w io.Writer) error {
	var speeds []string
	for _, t := range r.Groups {
		speeds = append(speeds, fmt.Sprintf("%s %.2f GB/s", t.Kind, t.Slowest/1e9))
	}
	text := fmt.Sprintf("preflight: %s on %s; rank 0: %s; slowest group of each kind: %s; %.2f s\n", logging.Count(r.Ranks, "rank"), logging.Count(r.Hosts, "host"), r.Transports, strings.Join(speeds, ", "), r.Took.Seconds())
	for _, line := range r.Placing {
		text += "preflight: " + line + "\n"
	}
	for _, note := range r.Notes {
		text += "preflight: " + note + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// Meet waits for the other processes of a run, which must run the same program and have the
// same values in alike; notes takes a line on whom it waits for. limit is how long, and the
// longest that a collective may wait for its peers.
func Meet(ctx context.Context, env *launchenv.Env, alike map[string]string, limit time.Duration, notes io.Writer) (*process.World, error) {
	secret, err := env.Secret(os.Getenv)
	if err != nil {
		return nil, err
	}
	alike = maps.Clone(alike)
	if alike["binary"], err = binary(); err != nil {
		return nil, err
	}
	config := rendezvous.Config{Rank: env.Rank, World: env.Size, Addr: env.Addr, Secret: secret, Alike: alike, Timeout: limit}
	if env.Local == 0 {
		config.Notes = notes // one of each host says whom it waits for
	}
	return process.Join(ctx, config, limit)
}

// binary is a hash of this program: ranks must run the same.
func binary() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", exitcode.With(exitcode.IO, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return "", exitcode.With(exitcode.IO, err)
	}
	defer f.Close()
	hash := xxh3.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", exitcode.With(exitcode.IO, err)
	}
	return fmt.Sprintf("%016x", hash.Sum64()), nil
}
