package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm/failure"
)

// meetingPort is where the launchers meet at first.
func (o *options) meetingPort() (host string, port int, err error) {
	host, text, err := net.SplitHostPort(o.given)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	return host, port + 1, exitcode.With(exitcode.Usage, err)
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
				fmt.Fprintf(notes, "launch: host 0 is lost, and too few of %d hosts are present to continue; waiting up to %v for other hosts\n", g.all, time.Until(end).Round(time.Second))
				noted = true
			}
		case ctx.Err() != nil:
			return 0, nil, exitcode.Errorf(exitcode.Again, "stopped while waiting for the other hosts; run the same command again")
		case late && time.Now().After(end):
			return 0, nil, exitcode.Errorf(exitcode.IO, "the hosts started without this one, and host 0 no longer answers: the run has ended, or host 0 is lost (%w)", err)
		case errors.As(err, &v) && v.Kind == runIsOver && v.Code != exitcode.Again, g.addrs == nil && !late && exitcode.CodeOf(err) != exitcode.Again:
			return 0, nil, err
		case g.addrs == nil && exitcode.CodeOf(err) == exitcode.Again: // it came late: the others run, for however long
			end, late = time.Now().Add(g.hostWait+settling), true
		case time.Now().After(end):
			return 0, nil, exitcode.Errorf(exitcode.IO, "the other hosts cannot be reached: %w; restart on the remaining hosts", err)
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
		Timeout: limit, Called: "host", Notes: notes, Report: own.String(), Loose: true, Late: g.spares > 0, Data: g.data()}
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
