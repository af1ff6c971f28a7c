package process

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// sharedEnd is either end of a transport through shared memory. The connection shows
// when the other end is gone.
type sharedEnd struct {
	*ring
	conn net.Conn
	left int64 // of the message that is read
	pad  int64 // what follows it, up to a multiple of ringAlign
}

// sharedFolder holds the segments until both ends have opened them.
const sharedFolder = "/dev/shm"

var sharedName = regexp.MustCompile(`^monotron-[0-9a-f]{32}$`)

// All rings of a host together are to take no more than this; each ring from
// smallestRing to largestRing.
const (
	allRings     = 256 << 20
	largestRing  = 1 << 20
	smallestRing = 64 << 10
)

// offerShared makes a segment for a rank of this host; its name is taken away as
// soon as the other end has opened it.
func (l *links) offerShared(conn net.Conn) (sender, error) {
	here := l.ranksHere()
	capacity := int64(largestRing)
	for capacity > smallestRing && capacity*int64(here*(here-1)) > allRings {
		capacity /= 2
	}
	var name [16]byte
	rand.Read(name[:]) // never fails: it ends the program instead
	o := &offer{Transport: transportShared, Name: "monotron-" + hex.EncodeToString(name[:]), RingBytes: capacity}
	path := filepath.Join(sharedFolder, o.Name)
	memory, err := makeSegment(path, capacity)
	if err != nil {
		return nil, refusal(err.Error())
	}
	_, err = l.propose(conn, o)
	err = errors.Join(err, os.Remove(path)) // the other end has it, or never will
	return l.sharedEnd(conn, memory, here, err)
}

// answerShared opens the segment.
func (l *links) answerShared(conn net.Conn, o *offer) (receiver, error) {
	if !sharedName.MatchString(o.Name) || o.RingBytes < smallestRing || o.RingBytes > largestRing || o.RingBytes%ringAlign != 0 {
		return nil, errors.New("the other rank's offer of shared memory is invalid")
	}
	memory, err := openSegment(filepath.Join(sharedFolder, o.Name), o.RingBytes)
	if err != nil {
		return nil, refusal(err.Error())
	}
	return l.sharedEnd(conn, memory, l.ranksHere(), writeOffer(conn, &offer{Transport: transportShared}))
}

// sharedEnd is an end in mapped memory, unless there is an error.
func (l *links) sharedEnd(conn net.Conn, memory []byte, here int, err error) (*sharedEnd, error) {
	e := &sharedEnd{ring: newRing(memory, spinning(here)), conn: conn}
	if err == nil && !l.keep(conn, e.stop) {
		err = net.ErrClosed
	}
	if err != nil {
		e.free()
		return nil, err
	}
	return e, nil
}

// ranksHere counts the ranks of this host.
func (l *links) ranksHere() (n int) {
	members := l.process.session.Members()
	for _, m := range members {
		if m.Host == members[l.process.rank].Host {
			n++
		}
	}
	return n
}

// spinning is how long an end may poll for what it waits for before it sleeps,
// among so many ranks of a host.
func spinning(here int) time.Duration {
	if here > runtime.NumCPU() {
		return 0 // the core is needed by who is waited for
	}
	return 20 * time.Microsecond
}

// makeSegment makes a file of shared memory that only this user may open. Its
// pages are there before it is used: a full /dev/shm is an error here, and no
// signal later.
func makeSegment(path string, capacity int64) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", sharedFolder, err)
	}
	defer unix.Close(fd)
	size := ringHead + capacity
	err = unix.Fallocate(fd, 0, 0, size)
	if err != nil {
		err = fmt.Errorf("%s has less than %d KiB free: %w; enlarge it with mount -o remount,size=1G %s, or for a container with --shm-size=1g", sharedFolder, size>>10, err, sharedFolder)
	}
	var memory []byte
	if err == nil {
		memory, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return memory, nil
}

// openSegment maps what another process of this user has made.
func openSegment(path string, capacity int64) ([]byte, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("a file that another rank created in %s is not visible to this process: %w", sharedFolder, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	if int(st.Uid) != os.Geteuid() || st.Mode&0o777 != 0o600 || st.Size != ringHead+capacity {
		return nil, fmt.Errorf("a memory segment in %s differs from what the other rank offered", sharedFolder)
	}
	return unix.Mmap(fd, 0, int(st.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// begin watches, once the transport is agreed on, for the end of the connection.
func (e *sharedEnd) begin() {
	go func() {
		_, _ = io.Copy(io.Discard, e.conn) // however it ends
		e.leave()
	}()
}

var padding [ringAlign]byte

func (e *sharedEnd) send(h *header, data []byte) error {
	head, err := h.bytes()
	if err == nil {
		err = e.put(head)
	}
	if err == nil {
		err = e.put(data)
	}
	if err == nil {
		err = e.put(padding[:fill(int64(len(data)))])
	}
	return err
}

// fill is what n bytes lack to a multiple of ringAlign.
func fill(n int64) int64 { return -n & (ringAlign - 1) }

// head reads the next one, after what the last message has left.
func (e *sharedEnd) head(bytes []byte) error {
	for e.left, e.pad = e.left+e.pad, 0; e.left > 0; {
		v, err := e.next()
		if err != nil {
			return err
		}
		e.done(len(v))
	}
	_, err := io.ReadFull(e.ring, bytes)
	return err
}

func (e *sharedEnd) expect(n int64) { e.left, e.pad = n, fill(n) }

func (e *sharedEnd) Read(b []byte) (int, error) {
	if e.left == 0 {
		return 0, io.EOF
	}
	n, err := e.ring.Read(b[:min(int64(len(b)), e.left)])
	e.left -= int64(n)
	return n, err
}

// next is a stretch of the message where it lies; done gives it back.
func (e *sharedEnd) next() ([]byte, error) { return e.view(e.left) }

func (e *sharedEnd) done(n int) {
	e.skip(n)
	e.left -= int64(n)
}

func (e *sharedEnd) close() { e.free() }
