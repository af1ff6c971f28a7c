package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/mpu/bootstrap/rendezvous"
)

// With --auto-restart the launchers of several hosts (--nnodes) meet before every start. At
// first all must come, at the port above the ranks' on host 0; after a failure the present ones continue, led
// by the first of them by number. Each has a port for that, which is open while
// its process lives: who finds it closed knows that the launcher is gone.

// errNotNeeded is for a host that is left over: the layout holds on fewer.
var errNotNeeded = errors.New("not needed")

const (
	// firstGathering is how long hosts wait for each other before the first start.
	firstGathering = 10 * time.Minute
	// lateSpares is how long the first start waits for spare hosts.
	lateSpares = 10 * time.Second
	// answerLimit is how long a launcher's port may take to answer.
	answerLimit = 2 * time.Second
	// settling is how long a host may still be ending its ranks when the first has come.
	settling = time.Minute
)

// gathering is this launcher's part in the meetings.
type gathering struct {
	*options
	listener *rendezvous.Listener
	addrs    []string            // of the launchers' ports, by number; nil: they have not met
	session  *rendezvous.Session // since the last meeting; nil: none
	ended    chan struct{}       // closed when the session is
	had      claim               // in the last start
	check    *spareCheck         // of this host as a spare one; nil: none was begun since it last ran ranks
	slots    []int               // by node rank: the launchers of the last start
}

// gathers reports whether the launchers of this run meet.
func (o *options) gathers() bool { return o.restartsAtAll && o.all > 1 }

// newGathering opens this launcher's port.
func (o *options) newGathering() (*gathering, error) {
	g := &gathering{options: o, had: claim{slot: -1}}
	host, port, err := o.meetingPort()
	if err != nil {
		return nil, err
	}
	addr := ":0"
	if o.number0 == 0 {
		addr = rendezvous.Address(host, port)
	}
	g.listener, err = rendezvous.Listen(addr)
	if err != nil {
		return nil, fmt.Errorf("host %d cannot listen at %s, where the hosts meet (one port above --master-port): %w", o.number0, addr, err)
	}
	return g, nil
}

// gather meets the other hosts' launchers and gives this one its number among those
// that run ranks; spare: it has none, and waits for the next meeting. Everything follows from who
// is there, so all come to the same.
func (g *gathering) gather(ctx context.Context, notes io.Writer) (spare bool, err error) {
	g.leave()
	lead, members, err := g.meet(ctx, notes)
	if err != nil {
		return false, err
	}
	// Who has come, and with what.
	var here []arrival
	var gone []string
	g.addrs = make([]string, g.all)
	for number, m := range members {
		if m.PID == 0 {
			gone = append(gone, strconv.Itoa(number))
			continue
		}
		g.addrs[number] = m.Addr
		if c := readClaim(m.Report); !c.checking {
			here = append(here, arrival{number, c})
		}
	}
	if members[g.number0].PID == 0 { // it came late: the others have begun
		notes = io.Discard
	}
	// How many hosts run ranks, and which.
	if !g.enoughWithout0(lead, members) {
		return false, exitcode.Errorf(exitcode.IO, "host 0, where the hosts meet, is lost, and the remaining %d of %d hosts are too few to continue; restart on the remaining hosts, with one of them as --master-addr", len(here), g.all)
	}
	hosts, err := g.hostsToUse(len(here), "number "+strings.Join(gone, ", "), notes)
	if err != nil {
		return false, err
	}
	before := g.slots
	g.slots = assign(here, hosts)
	g.tellReplaced(before, notes)
	// What follows for this one.
	g.fewer = hosts < g.wanted
	g.nodes, g.node, g.start = hosts, slices.Index(g.slots, g.number0), 0
	for _, a := range here {
		g.start = max(g.start, a.start+1)
		if a.resumes {
			g.continueSaved() // this host may have come after the others had begun
		}
	}
	if g.addr, err = g.ranksAddr(); err != nil {
		return false, err
	}
	if g.node >= 0 {
		g.had = claim{slot: g.node, start: g.start}
		return false, nil
	}
	g.node = 0
	if g.spares == 0 {
		fmt.Fprintf(notes, "launch: this host is no longer needed: the layout runs on %d other hosts\n", g.nodes)
		return false, errNotNeeded
	}
	return true, nil
}

// tellReplaced says which spare hosts have replaced which.
func (g *gathering) tellReplaced(before []int, notes io.Writer) {
	if len(before) != len(g.slots) {
		return
	}
	for node, number := range g.slots {
		if before[node] != number {
			fmt.Fprintf(notes, "launch: host %d replaces host %d as node rank %d\n", number, before[node], node)
		}
	}
}

// ranksAddr is where the ranks meet: as the flags say, or, where that host does not run rank 0,
// at the same port of the one that does.
func (g *gathering) ranksAddr() (string, error) {
	if g.slots[0] == 0 {
		return g.given, nil
	}
	host, _, err := net.SplitHostPort(g.addrs[g.slots[0]])
	if err != nil {
		return "", exitcode.With(exitcode.Internal, err)
	}
	_, port, err := net.SplitHostPort(g.given)
	return net.JoinHostPort(host, port), exitcode.With(exitcode.Usage, err)
}

// hostsToUse is on how many of the present hosts the run continues.
func (o *options) hostsToUse(here int, gone string, notes io.Writer) (hosts int, err error) {
	if here >= o.wanted {
		return o.wanted, nil
	}
	hosts = o.hostsFor(here)
	if hosts == 0 {
		why := fmt.Sprintf("which cannot run the layout (%s)", o.layout())
		if here < o.leastNodes {
			why = fmt.Sprintf("fewer than --min-nnodes %d", o.leastNodes)
		}
		return 0, exitcode.Errorf(exitcode.IO, "lost %s of %d hosts: the run has %s (%d ranks) left, %s; restore the host, or restart with a layout that fits",
			gone, o.all, logging.Count(here, "host"), here*o.local, why)
	}
	fmt.Fprintf(notes, "launch: lost %s of %d hosts; continuing with %s, %d ranks\n", gone, o.all, logging.Count(hosts, "host"), hosts*o.local)
	return hosts, nil
}

// enoughWithout0 reports whether the members of a meeting that host 0 does not lead may decide for all: other
// hosts may have met without these, unless these are as many as are needed, or the majority.
func (g *gathering) enoughWithout0(lead int, members []rendezvous.Member) bool {
	here := 0
	for _, m := range members {
		if m.PID != 0 {
			here++
		}
	}
	return lead == 0 || here >= g.wanted || 2*here > g.all
}

// close ends this launcher's port.
func (g *gathering) close() {
	if g == nil {
		return
	}
	if g.session != nil {
		_ = g.session.Close() // others may continue
	}
	_ = g.listener.End() // nothing more is wanted of it
}
