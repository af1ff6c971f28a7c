package process

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"net"
	"sync"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
)

// World is one of which this process has one rank; the others are other
// processes, here or on other hosts. Bytes travel over TCP connections, one a
// direction, made when first needed (links.go). Sums are those of goroutines: every rank
// sums its share of the elements in rank order, then passes it on, so that
// processes equal goroutines bit for bit.
//
// All methods may be called from several goroutines, each with groups of its own.
type World struct {
	session *rendezvous.Session
	rank    int
	size    int
	pool    *device.Pool
	limit   time.Duration // longest wait of a collective
	links   *links
	fast    bool // sums by Gloo, where it can
	ending  sync.Once
	outcome error // what End returned

	mu       sync.Mutex // of all below, and of all waiting messages
	err      error
	groups   map[string]*group
	receives map[address]*receive // messages that are expected, or have come early
	ended    map[int]bool         // ranks that have sent their last message
}

// Join joins a run; c.Data is filled here. limit is the longest that a
// collective may wait for its peers; 0 is ten minutes.
func Join(ctx context.Context, c rendezvous.Config, limit time.Duration) (*World, error) {
	listener, err := listen(&c)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "no port can be opened to receive tensors: %w", err)
	}
	c.Alike = maps.Clone(c.Alike)
	if c.Alike == nil {
		c.Alike = map[string]string{}
	}
	c.Alike["MONOTRON_TRANSPORTS"] = allowed()
	s, err := rendezvous.Join(ctx, c)
	if err != nil {
		listener.Close() // nothing more is wanted of it
		return nil, err
	}
	if limit <= 0 {
		limit = 10 * time.Minute
	}
	p := &World{session: s, rank: c.Rank, size: c.World, pool: device.SharedPool(), limit: limit,
		groups: map[string]*group{}, receives: map[address]*receive{}, ended: map[int]bool{}}
	p.pool.SetCallers(1)
	p.links = newLinks(p, listener)
	go p.watch()
	return p, nil
}

// listen takes a port for tensors on the interface that leads to rank 0, and fills c.Data.
func listen(c *rendezvous.Config) (net.Listener, error) {
	if !rendezvous.OwnName(c.Addr, c.Rank == 0) {
		listener, err := net.Listen("tcp", net.JoinHostPort(rendezvous.Towards(c.Addr), "0"))
		if err == nil {
			c.Data = listener.Addr().String()
		}
		return listener, err
	}
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		return nil, err
	}
	host, _, _ := net.SplitHostPort(c.Addr) // OwnName has read it
	c.Data = rendezvous.Address(host, listener.Addr().(*net.TCPAddr).Port)
	return listener, nil
}

// Size is the number of ranks, Rank this process's, Run the run's name.
func (p *World) Size() int   { return p.size }
func (p *World) Rank() int   { return p.rank }
func (p *World) Run() string { return p.session.Run() }

// Members are all ranks, by number.
func (p *World) Members() []rendezvous.Member { return p.session.Members() }

// watch ends everything when the run is lost.
func (p *World) watch() {
	<-p.session.Lost()
	if err := p.session.Err(); err != nil {
		p.stop(err)
	}
}

// Group is this rank's membership of a group; all members name the same ranks in the same order; another list
// is another group.
func (p *World) Group(rank int, name string, members []int, d *device.Device) (*comm.Group, error) {
	if rank != p.rank {
		return nil, exitcode.Errorf(exitcode.Internal, "internal error: the process of rank %d cannot join the group %s of ranks %v as rank %d; report this, and include the command line", p.rank, name, members, rank)
	}
	member, err := comm.Join(name, rank, members, p.size)
	if err != nil {
		return nil, err
	}
	if member.Size() == 1 {
		return comm.Solo(name, rank, d), nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	key := fmt.Sprint(name, members)
	g := p.groups[key]
	if g == nil {
		hash := fnv.New64a()
		_, _ = hash.Write([]byte(key)) // never fails
		g = &group{Membership: member, world: p, id: hash.Sum64(), piece: p.pieceOf(members), device: d, open: map[*operation]bool{},
			sent: make([]int64, len(members)), received: make([]int64, len(members))}
		p.groups[key] = g
	}
	return comm.NewGroup(member, g), nil
}

// Abort ends everything with err, on all ranks.
func (p *World) Abort(err error) {
	p.stop(p.session.Fail(err))
}

// End says that this rank is done, and why: nil when its work is. It returns what
// ended the run: the error of the rank that failed first, or nil. After it
// nothing touches the rank's memory. A second call ends nothing; it returns what the first
// did, or else err.
func (p *World) End(err error) error {
	first := false
	p.ending.Do(func() { first, p.outcome = true, p.end(err) })
	if !first && p.outcome == nil {
		return err
	}
	return p.outcome
}

func (p *World) end(err error) error {
	if err != nil {
		err = p.session.Fail(err)
		p.stop(err)
	}
	if err == nil {
		p.links.flush()
	}
	closed := p.session.Close()
	p.links.close()
	if err == nil {
		err = closed
	}
	return err
}

// Err is why nothing continues any more; nil: all is well.
func (p *World) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// stop gives err to all that waits and to all calls to come.
func (p *World) stop(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return
	}
	p.err = err
	for _, g := range p.groups {
		for t := range g.open {
			t.end(err)
		}
	}
	clear(p.receives)
	p.links.cut()
}

// suspect is called when the connection with a rank has broken. Most often the
// rank has died and the verdict, which knows more, is on its way.
func (p *World) suspect(rank int, why error) {
	select {
	case <-p.session.Lost():
		return
	case <-time.After(3 * time.Second):
	}
	m := p.session.Members()[rank]
	p.stop(p.session.Fail(exitcode.Errorf(exitcode.IO, "the connection with %s broke: %w", m.String(), why)))
}

// Lost is closed when the run is at its end before it is done; who computes and
// calls nothing does not notice otherwise.
func (p *World) Lost() <-chan struct{} { return p.session.Lost() }

// Verdict is why, once Lost is closed.
func (p *World) Verdict() error { return p.session.Err() }

// Judge ends the run with a verdict on whatever rank.
func (p *World) Judge(v *failure.Verdict) { p.stop(p.session.Judge(v)) }

// Session is the rank's membership in the run, over which it says how it is.
func (p *World) Session() *rendezvous.Session { return p.session }

// Bench times an all-reduce of `bytes` among all processes of the run for about
// `budget`: the best, as this rank sees it.
func (p *World) Bench(d *device.Device, bytes int64, budget time.Duration) (time.Duration, error) {
	var members []int
	for r := range p.size {
		members = append(members, r)
	}
	g, err := p.Group(p.rank, fmt.Sprint("bench ", bytes), members, d)
	if err != nil {
		return 0, err
	}
	return comm.TimeAllReduce(g, d, bytes, budget)
}
