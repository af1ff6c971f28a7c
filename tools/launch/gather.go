package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm/failure"
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
		return nil, fmt.Errorf("host %d cannot listen at %s, where the hosts meet (the port above --master-port): %w", o.number0, addr, err)
	}
	return g, nil
}

// meetingPort is where the launchers meet at first.
func (o *options) meetingPort() (host string, port int, err error) {
	host, text, err := net.SplitHostPort(o.given)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	return host, port + 1, exitcode.With(exitcode.Usage, err)
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
	// How many hosts run ranks, and which.
	if !g.enoughWithout0(lead, members) {
		return false, exitcode.Errorf(exitcode.IO, "host 0, where the hosts meet, is lost, and %d of %d hosts are too few to continue without it; restart on the remaining hosts, with one of them as --master-addr", len(here), g.all)
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
		fmt.Fprintf(notes, "launch: this host is no longer needed: the layout runs on %d others\n", g.nodes)
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
		return 0, exitcode.Errorf(exitcode.IO, "lost %[2]s of %[1]d hosts: the remaining %[3]d hosts (%[4]d ranks) cannot run the layout: %[5]s; --min-nnodes %[6]d. Restore the host, or restart with a layout that fits",
			o.all, gone, here, here*o.local, o.layout(), o.leastNodes)
	}
	fmt.Fprintf(notes, "launch: lost %[2]s of %[1]d hosts; continuing with %[3]d, %[4]d ranks\n", o.all, gone, hosts, hosts*o.local)
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

// meet waits for the other launchers, and gives them by number. A meeting of too few is repeated
// while there is time: a host that ends its ranks comes late, and a spare one comes again after its check.
func (g *gathering) meet(ctx context.Context, notes io.Writer) (lead int, all []rendezvous.Member, err error) {
	limit := g.hostWait + settling
	if g.addrs == nil {
		limit = firstGathering
	}
	end, noted, late := time.Now().Add(limit), false, false
	for {
		if err := g.check.failure(); err != nil {
			return 0, nil, err
		}
		lead, addr := g.leader()
		s, err := g.join(ctx, lead, addr, time.Until(end), notes)
		var v *failure.Verdict
		switch {
		case err == nil && (g.enoughWithout0(lead, s.Members()) || time.Now().After(end)):
			g.hold(s)
			return lead, g.byNumber(s.Members(), lead), nil
		case err == nil:
			_ = s.Close() // too few: why it ends does not matter
			if !noted {
				fmt.Fprintf(notes, "launch: host 0 is lost, and too few of %d hosts are there to continue without it; waiting up to %v for others\n", g.all, time.Until(end).Round(time.Second))
				noted = true
			}
		case ctx.Err() != nil:
			return 0, nil, exitcode.Errorf(exitcode.Again, "stopped while waiting for the other hosts; run the same command again")
		case late && time.Now().After(end):
			return 0, nil, exitcode.Errorf(exitcode.IO, "the hosts started without this one, and host 0 does not answer any more: the run has ended, or host 0 is lost (%w)", err)
		case errors.As(err, &v) && v.Kind == runIsOver && v.Code != exitcode.Again, g.addrs == nil && !late && exitcode.CodeOf(err) != exitcode.Again:
			return 0, nil, err
		case g.addrs == nil && exitcode.CodeOf(err) == exitcode.Again: // it came late: the others run, for however long
			end, late = time.Now().Add(g.hostWait+settling), true
		case time.Now().After(end):
			return 0, nil, exitcode.Errorf(exitcode.IO, "the other hosts cannot be met: %w; restart on the remaining hosts", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// leader is the first launcher whose port is open. Before the first meeting only host 0's is known.
func (g *gathering) leader() (number int, addr string) {
	for number, addr := range g.addrs {
		if number == g.number0 || addr != "" && rendezvous.Lives(addr, answerLimit) {
			return number, addr
		}
	}
	host, port, _ := g.meetingPort() // newGathering has read it
	return 0, rendezvous.Address(host, port)
}

// join is this launcher's membership of a meeting that another, or this one itself, leads.
func (g *gathering) join(ctx context.Context, lead int, addr string, limit time.Duration, notes io.Writer) (*rendezvous.Session, error) {
	secret, err := (&launchenv.Env{Job: "launchers"}).Secret(os.Getenv)
	if err != nil {
		return nil, err
	}
	own := g.had
	own.resumes, own.checking = g.resumes, g.check.running()
	c := rendezvous.Config{Rank: g.ordinal(g.number0, lead), World: g.all, Addr: addr, Secret: fmt.Appendf(secret, " of launchers that host %d leads", lead),
		Alike: map[string]string{"--nproc-per-node": strconv.Itoa(g.local), "layout": g.layout().String(), "--min-nnodes": strconv.Itoa(g.leastNodes),
			"--nnodes": strconv.Itoa(g.wanted)},
		Timeout: limit, Called: "host", Notes: notes, Report: own.String(), Loose: true, Data: g.data()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if own.checking {
		go untilChecked(ctx, g.check, cancel)
	}
	if lead == g.number0 {
		c.Listener = g.listener
		w := newWait(g, ctx)
		c.Enough = w.enough
		if g.addrs != nil {
			c.Fewer, c.Timeout = true, min(limit, g.hostWait)
			go untilEarlier(ctx, g.addrs[:g.number0], cancel)
		}
	} else if g.addrs != nil {
		go untilDead(ctx, addr, cancel)
	}
	return rendezvous.Join(ctx, c)
}

// data is this launcher's port, as others reach it.
func (g *gathering) data() string {
	if g.number0 == 0 {
		host, port, _ := g.meetingPort() // newGathering has read it
		return rendezvous.Address(host, port)
	}
	return ":" + strconv.Itoa(g.listener.Port())
}

// untilDead ends a wait for a leader that is gone.
func untilDead(ctx context.Context, addr string, end func()) {
	for ctx.Err() == nil {
		if !rendezvous.Lives(addr, answerLimit) {
			end()
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// untilChecked ends a wait in which this host says that it cannot run ranks yet.
func untilChecked(ctx context.Context, c *spareCheck, end func()) {
	select {
	case <-ctx.Done():
	case <-c.done:
		end()
	}
}

// untilEarlier ends the lead of this launcher when one with a lower number is there: it has come
// back, and the others will go to it.
func untilEarlier(ctx context.Context, addrs []string, end func()) {
	for ctx.Err() == nil {
		for _, addr := range addrs {
			if addr != "" && rendezvous.Lives(addr, answerLimit) {
				end()
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

// ordinal is a launcher's number in a meeting, in which the leader's is 0.
func (g *gathering) ordinal(number, lead int) int { return (number - lead + g.all) % g.all }

func (g *gathering) byNumber(members []rendezvous.Member, lead int) []rendezvous.Member {
	list := make([]rendezvous.Member, len(members))
	for number := range list {
		list[number] = members[g.ordinal(number, lead)]
	}
	return list
}

// hold keeps a session until somebody ends it.
func (g *gathering) hold(s *rendezvous.Session) {
	g.session, g.ended = s, make(chan struct{})
	go func(ended chan struct{}) {
		<-s.Lost()
		_ = s.Close() // why it ended is in Err
		close(ended)
	}(g.ended)
}

// What launchers tell each other at the end of a start, by the verdict's kind: all meet again, or
// the run is over.
const (
	meetAgain = failure.Other
	runIsOver = failure.Own
)

// over ends the session for all, with how the run has ended. Without other hosts there is none.
func (g *gathering) over(err error) {
	if g == nil || g.session == nil {
		return
	}
	v := &failure.Verdict{Kind: runIsOver, Rank: g.number0, Code: exitcode.CodeOf(err), Text: "it is done", Time: time.Now()}
	if err != nil {
		v.Text = err.Error()
	}
	_ = g.session.Judge(v) // the first one counts
	g.leave()
}

// leave ends this launcher's part in the last meeting.
func (g *gathering) leave() {
	if g.session == nil {
		return
	}
	select {
	case <-g.session.Lost():
		<-g.ended
	default:
		_ = g.session.Judge(&failure.Verdict{Kind: meetAgain, Rank: g.number0, Code: exitcode.Again, Text: "the hosts meet again", Time: time.Now()})
		<-g.ended
	}
	g.session = nil
}

// standby waits, on a spare host, until the hosts meet again (nil), the run is over or its check fails.
func (g *gathering) standby(ctx context.Context, notes io.Writer) (over bool, err error) {
	select {
	case <-ctx.Done():
		err = exitcode.Errorf(exitcode.Again, "stopped while waiting as a spare host")
	case <-g.check.failed:
		err = g.check.failure()
	case <-g.session.Lost():
	}
	if err != nil {
		_ = g.session.Close() // the others continue
		g.session = nil
		return true, err
	}
	<-g.ended
	var v *failure.Verdict
	err = g.session.Err()
	g.session = nil
	if errors.As(err, &v) && v.Kind == runIsOver {
		if v.Code == exitcode.Done {
			fmt.Fprintln(notes, "launch: the run is over; this spare host was not needed any more")
			return true, nil
		}
		return true, exitcode.Errorf(v.Code, "the run has ended on the other hosts: %s", v.Text)
	}
	return false, nil
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

// wait decides, where this launcher leads, whether to continue without those that have not come.
type wait struct {
	g     *gathering
	since time.Time
	first bool

	mu   sync.Mutex
	gone map[int]bool // launchers whose ports are closed
}

// newWait asks all ports of the last start, until ctx is done.
func newWait(g *gathering, ctx context.Context) *wait {
	w := &wait{g: g, since: time.Now(), first: g.addrs == nil, gone: map[int]bool{}}
	for _, number := range g.slots {
		if number != g.number0 {
			go w.ask(ctx, number, g.addrs[number])
		}
	}
	return w
}

func (w *wait) ask(ctx context.Context, number int, addr string) {
	for ctx.Err() == nil {
		lives := addr != "" && rendezvous.Lives(addr, answerLimit)
		w.mu.Lock()
		w.gone[number] = !lives
		w.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// enough: a first start needs all hosts but spares, which it waits for shortly. Later as many are
// enough as run ranks, if of those that did the others are gone. Who leads without having been in
// the last start cannot ask those.
func (w *wait) enough(here []rendezvous.Member) bool {
	// Who is there and can run ranks, and whether a start was before.
	came, again := map[int]bool{}, false
	for _, m := range here {
		c := readClaim(m.Report)
		if !c.checking {
			came[(m.Rank+w.g.number0)%w.g.all] = true
		}
		again = again || c.start > 0
	}
	// As many as are needed, and which others to wait for.
	switch {
	case w.first && again:
		return len(came) >= w.g.wanted && time.Since(w.since) >= lateSpares
	case w.first:
		for number := range w.g.wanted {
			if !came[number] {
				return false
			}
		}
		return time.Since(w.since) >= lateSpares
	case len(came) < w.g.wanted:
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, number := range w.g.slots {
		if !came[number] && !w.gone[number] {
			return false
		}
	}
	return true
}
