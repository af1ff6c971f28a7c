package atomicfile

import (
	"os"
	"sync"
	"time"
)

const (
	leasePoll  = 100 * time.Millisecond // how often a waiting process checks
	leaseSign  = time.Second            // how often who builds gives a sign
	leaseStale = 30 * time.Second       // without a sign: who builds is stopped
)

// Lease is the right to make one set of files, so that of all processes
// that need them one builds and the others read what it has written. Where nobody can have it
// (a folder that cannot be written, a file system without locks) everybody builds. The kernel
// ends a lease with its process. A nil lease is none.
type Lease struct {
	file *os.File
	quit chan struct{}
	idle sync.WaitGroup
}

// NewLease waits until this process may build the files of path, or ready says that another has
// built them; then, and where leases do not work, it is nil. waiting is called meanwhile.
func NewLease(path string, ready func() bool, waiting func()) *Lease {
	var signed, seen time.Time // the other's last sign, by its clock, and when that was seen here
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
		if err != nil {
			return nil
		}
		locked, err := Lock(f)
		switch {
		case err != nil:
			f.Close() // nothing was written
			return nil
		case !locked:
			l := &Lease{file: f, quit: make(chan struct{})}
			l.idle.Go(l.sign)
			return l
		}
		st, err := f.Stat()
		f.Close() // nothing was written
		if err != nil {
			return nil
		}
		if st.ModTime() != signed {
			signed, seen = st.ModTime(), time.Now()
		}
		if time.Since(seen) > leaseStale || ready() {
			return nil
		}
		waiting()
		time.Sleep(leasePoll)
	}
}

// sign shows those that wait that this process still builds.
func (l *Lease) sign() {
	tick := time.NewTicker(leaseSign)
	defer tick.Stop()
	for {
		select {
		case <-l.quit:
			return
		case now := <-tick.C:
			_ = os.Chtimes(l.file.Name(), now, now) // else others build, too
		}
	}
}

// End gives the lease back. Who has opened the file meanwhile finds it gone, and the arrays
// there.
func (l *Lease) End() {
	if l == nil {
		return
	}
	close(l.quit)
	l.idle.Wait()
	_ = os.Remove(l.file.Name()) // an empty file that is left does no harm
	_ = l.file.Close()           // nothing was written
}
