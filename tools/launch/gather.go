package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/bootstrap/launchenv"
	"monotron/mpu/bootstrap/rendezvous"
)

// With --auto-restart the launchers of several hosts (--nnodes) meet before every
// start, at the port above the ranks'. At first all must come; after a failure those
// go on that are there when --host-wait-seconds are over.

// errNotNeeded is for a host that is left over: the layout holds on fewer.
var errNotNeeded = errors.New("not needed")

// firstGathering is how long hosts wait for each other before the first start.
const firstGathering = 10 * time.Minute

// gathers tells whether the launchers of this run meet.
func (o *options) gathers() bool { return o.restartsAtAll && o.all > 1 }

// gather meets the other hosts' launchers and gives this one its number among those
// that are there. Everything follows from who is there, so all come to the same.
func (o *options) gather(ctx context.Context, attempt int, notes io.Writer) error {
	members, err := o.meet(ctx, attempt, notes)
	if err != nil {
		return err
	}
	var here, gone []string
	o.node = -1
	for number, m := range members {
		switch {
		case m.PID == 0:
			gone = append(gone, strconv.Itoa(number))
			continue
		case number == o.number0:
			o.node = len(here)
		}
		here = append(here, m.Host)
	}
	if o.nodes, err = o.hostsToUse(len(here), "number "+strings.Join(gone, ", "), notes); err != nil {
		return err
	}
	if o.node >= o.nodes {
		fmt.Fprintf(notes, "launch: this host is no longer needed: the layout runs on %d others\n", o.nodes)
		return errNotNeeded
	}
	return nil
}

// hostsToUse is on how many of the hosts that are there the run goes on.
func (o *options) hostsToUse(here int, gone string, notes io.Writer) (hosts int, err error) {
	if here == o.all {
		return here, nil
	}
	hosts = o.hostsFor(here)
	if hosts == 0 {
		return 0, exitcode.Errorf(exitcode.IO, "lost %[2]s of %[1]d hosts: the remaining %[3]d hosts (%[4]d ranks) cannot run the layout: %[5]s; --min-nnodes %[6]d. Restore the host, or restart with a layout that fits",
			o.all, gone, here, here*o.local, o.layout(), o.leastNodes)
	}
	fmt.Fprintf(notes, "launch: lost %[2]s of %[1]d hosts; continuing with %[3]d, %[4]d ranks\n", o.all, gone, hosts, hosts*o.local)
	return hosts, nil
}

// meet waits for the other launchers.
func (o *options) meet(ctx context.Context, attempt int, notes io.Writer) ([]rendezvous.Member, error) {
	host, text, err := net.SplitHostPort(o.addr)
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return nil, exitcode.With(exitcode.Usage, err)
	}
	secret, err := (&launchenv.Place{Job: "launchers"}).Secret(os.Getenv)
	if err != nil {
		return nil, err
	}
	c := rendezvous.Config{Rank: o.number0, World: o.all, Addr: net.JoinHostPort(host, strconv.Itoa(port+1)), Secret: append(secret, " of launchers"...),
		Alike:   map[string]string{"--nproc-per-node": strconv.Itoa(o.local), "layout": o.layout().String(), "--min-nnodes": strconv.Itoa(o.leastNodes)},
		Timeout: firstGathering, Called: "host", Notes: notes}
	if attempt > 0 {
		c.Fewer, c.Timeout = true, o.hostWait
		if o.number0 > 0 {
			c.Timeout += time.Minute // that host may still be ending its ranks
		}
	}
	s, err := rendezvous.Join(ctx, c)
	switch {
	case ctx.Err() != nil:
		return nil, exitcode.Errorf(exitcode.Again, "stopped while waiting for the other hosts; run the same command again")
	case err != nil && attempt > 0 && o.number0 > 0:
		return nil, exitcode.Errorf(exitcode.IO, "host 0 (%s), the rendezvous of all hosts, does not come back (%w): restart on the remaining hosts, with one of them as --master-addr", host, err)
	case err != nil:
		return nil, err
	}
	return s.Members(), s.Close()
}
