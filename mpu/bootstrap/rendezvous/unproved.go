package rendezvous

import (
	"math/rand/v2"
	"net"
	"sync"

	"monotron/internal/cgroup"
)

// Unproved holds the connections that have not proved yet that they are of the run. They are
// bounded by the files that this process may have open, so that strangers cannot use these up.
// Beyond the bound one of them, by chance, is closed: strangers stay long and ranks prove
// themselves within milliseconds, so that it is seldom a rank's, and a rank then tries again.
type Unproved struct {
	most int

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
	at     map[net.Conn]int // in conns
}

// Of the files that may be open, one part in unprovedParts is for the unproved connections of a
// listener, of which a rank has two.
const (
	unprovedParts = 8
	mostUnproved  = 16384
)

// NewUnproved is an Unproved with the bound of this process.
func NewUnproved() *Unproved { return newUnproved(cgroup.Files(unprovedParts, mostUnproved)) }

func newUnproved(most int) *Unproved {
	return &Unproved{most: most, at: map[net.Conn]int{}}
}

// Add takes a connection; where there are too many it closes another first.
func (u *Unproved) Add(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		c.Close() // too late
		return
	}
	if len(u.conns) >= u.most {
		dropped := u.conns[rand.IntN(len(u.conns))]
		dropped.Close() // nothing is wanted of a stranger
		u.remove(dropped)
	}
	u.at[c] = len(u.conns)
	u.conns = append(u.conns, c)
}

// Remove takes a connection out that has proved itself, or has ended.
func (u *Unproved) Remove(c net.Conn) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.remove(c)
}

func (u *Unproved) remove(c net.Conn) {
	i, found := u.at[c]
	if !found {
		return
	}
	last := len(u.conns) - 1
	u.conns[i] = u.conns[last]
	u.at[u.conns[i]] = i
	u.conns[last] = nil
	u.conns = u.conns[:last]
	delete(u.at, c)
}

// Close closes all, and what is added later.
func (u *Unproved) Close() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = true
	for _, c := range u.conns {
		c.Close() // nothing is wanted of a stranger
	}
}
