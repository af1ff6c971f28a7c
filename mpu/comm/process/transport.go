package process

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	engine "monotron/csrc/comm"
	"monotron/internal/exitcode"
	"monotron/internal/logging"
	"monotron/mpu/bootstrap/rendezvous"
)

// A transport is what carries messages from one rank to another, once a connection
// between them stands: shared memory on one host, Gloo between hosts, and where
// neither can be had the connection itself. Who calls offers transports, in this order,
// until the other end takes one.
const (
	transportShared = "shm"
	transportGloo   = "gloo"
	transportTCP    = "tcp"
)

// sender is the calling end of a transport.
type sender interface {
	begin() // the connection has no deadlines any more
	send(h *header, data []byte) error
	close()
}

// receiver is the other end. A message's bytes, as many as expect says, are read
// after its head.
type receiver interface {
	begin()
	head(bytes []byte) error
	expect(n int64)
	io.Reader
	close()
}

// offer is what goes to and fro on a connection before it carries messages; the
// answer to one has the same transport, or says why not.
type offer struct {
	Transport string
	From      int    `json:",omitempty"`
	Name      string `json:",omitempty"` // shm: the segment
	RingBytes int64  `json:",omitempty"` // shm: bytes of its ring
	Addresses []byte `json:",omitempty"` // gloo: of the offering end
	Refused   string `json:",omitempty"`
}

const longestOffer = 4 << 10

// offerTime is how long an end may take to answer.
const offerTime = 60 * time.Second

// transports are the choices of one process.
type transports struct {
	allowed []string
	gloo    func() (*engine.Engine, error) // opened when first needed

	mu      sync.Mutex // of all below
	opened  *engine.Engine
	meshes  []*engine.Mesh // of groups whose sums Gloo makes
	used    map[string][]int
	refused map[string]string // why a transport could not be had, first reason
}

// outside is an address beyond this host's networks (RFC 5737): what leads there is the
// interface of the default route.
const outside = "203.0.113.1:9"

// allowed is the setting of transports, for tests and for who must do without one; MONOTRON_ROADS was
// its name in v0.1.
func allowed() string { return cmp.Or(os.Getenv("MONOTRON_TRANSPORTS"), os.Getenv("MONOTRON_ROADS")) }

// newTransports reads the setting.
func newTransports(l *links) *transports {
	r := &transports{allowed: []string{transportShared, transportGloo, transportTCP}, used: map[string][]int{}, refused: map[string]string{}}
	if text := allowed(); text != "" {
		r.allowed = append(strings.Split(text, ","), transportTCP)
	}
	host, _, _ := net.SplitHostPort(l.listener.Addr().String()) // a listener's address is well formed
	if net.ParseIP(host).IsUnspecified() {
		host = rendezvous.Towards(outside) // Gloo listens on one interface
	}
	r.gloo = sync.OnceValues(func() (*engine.Engine, error) {
		e, err := engine.Open(host)
		if err == nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.opened = e
		}
		return e, err
	})
	return r
}

// own remembers a mesh that no transport ends.
func (r *transports) own(m *engine.Mesh) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meshes = append(r.meshes, m)
}

// abort ends Gloo's own sums.
func (r *transports) abort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.meshes {
		m.Abort()
	}
}

// close ends the engine, if one was opened; the transports are closed, nobody calls.
func (r *transports) close() {
	for _, m := range r.meshes {
		m.Close()
	}
	if r.opened != nil {
		r.opened.Close()
	}
}

func (r *transports) allows(transport string) bool { return slices.Contains(r.allowed, transport) }

// note remembers which transport a rank is reached by, or why one could not be had.
func (r *transports) note(transport string, rank int, refused string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case refused == "":
		r.used[transport] = append(r.used[transport], rank)
	case r.refused[transport] == "":
		r.refused[transport] = refused
	}
}

// GlooMissing says why Gloo cannot be had here; nil: it can.
func GlooMissing() error { return engine.Available() }

// Transports says by which ways this rank has sent so far, and why not by a faster one.
func (p *World) Transports() string {
	r := p.links.transports
	r.mu.Lock()
	defer r.mu.Unlock()
	names := map[string]string{transportShared: "shared memory", transportGloo: "Gloo", transportTCP: "plain TCP"}
	var parts []string
	for _, transport := range []string{transportShared, transportGloo, transportTCP} {
		if n := len(r.used[transport]); n > 0 {
			parts = append(parts, names[transport]+" to "+logging.Count(n, "rank"))
		} else if why := r.refused[transport]; why != "" {
			parts = append(parts, fmt.Sprintf("no %s (%s)", names[transport], why))
		}
	}
	return strings.Join(parts, ", ")
}

// offer finds the best transport to a member that the other end takes.
func (l *links) offer(conn net.Conn, to *rendezvous.Member) (sender, error) {
	if err := conn.SetDeadline(time.Now().Add(offerTime)); err != nil {
		return nil, err
	}
	for _, transport := range []string{transportShared, transportGloo, transportTCP} {
		if !l.transports.allows(transport) || (transport == transportShared && to.Host != hostName()) {
			continue
		}
		out, err := l.offerTransport(transport, conn)
		if no := refusal(""); errors.As(err, &no) {
			l.transports.note(transport, to.Rank, string(no))
			continue
		}
		if err == nil {
			l.transports.note(transport, to.Rank, "")
			err = conn.SetDeadline(time.Time{})
			out.begin()
		}
		return out, err
	}
	return nil, fmt.Errorf("rank %d does not support any of the transports that rank %d offers", to.Rank, l.process.rank)
}

// refusal is why a transport cannot be had; another may.
type refusal string

func (r refusal) Error() string { return string(r) }

func (l *links) offerTransport(transport string, conn net.Conn) (sender, error) {
	switch transport {
	case transportShared:
		return l.offerShared(conn)
	case transportGloo:
		return l.offerGloo(conn)
	}
	_, err := l.propose(conn, &offer{Transport: transportTCP})
	return &plainEnd{conn: conn}, err
}

// propose sends an offer and gives the answer; a refusal is an error.
func (l *links) propose(conn net.Conn, o *offer) (*offer, error) {
	o.From = l.process.rank
	if err := writeOffer(conn, o); err != nil {
		return nil, err
	}
	answer, err := readOffer(conn)
	switch {
	case err != nil:
		return nil, err
	case answer.Refused != "":
		return nil, refusal(answer.Refused)
	case answer.Transport != o.Transport:
		return nil, fmt.Errorf("this rank offered the transport %s, but the peer answered with %s", o.Transport, answer.Transport)
	}
	return answer, nil
}

// answerOffers takes the first transport that it can, and says from which rank it comes.
func (l *links) answerOffers(conn net.Conn) (in receiver, from int, err error) {
	if err := conn.SetDeadline(time.Now().Add(offerTime)); err != nil {
		return nil, -1, err
	}
	for range 3 {
		o, err := readOffer(conn)
		if err != nil {
			return nil, -1, err
		}
		if o.From < 0 || o.From >= l.process.size {
			return nil, -1, fmt.Errorf("an offer names rank %d as its sender, but the run has %d ranks", o.From, l.process.size)
		}
		in, err := l.answer(conn, o)
		if no := refusal(""); errors.As(err, &no) {
			if err := writeOffer(conn, &offer{Transport: o.Transport, Refused: string(no)}); err != nil {
				return nil, o.From, err
			}
			continue
		}
		if err == nil {
			err = conn.SetDeadline(time.Time{})
			in.begin()
		}
		return in, o.From, err
	}
	return nil, -1, fmt.Errorf("the ranks have no common transport")
}

// answer opens this end of an offered transport, and says so to the other.
func (l *links) answer(conn net.Conn, o *offer) (receiver, error) {
	if !l.transports.allows(o.Transport) {
		return nil, refusal(fmt.Sprintf("MONOTRON_TRANSPORTS of rank %d does not name this transport", l.process.rank))
	}
	switch o.Transport {
	case transportShared:
		return l.answerShared(conn, o)
	case transportGloo:
		return l.answerGloo(conn, o)
	case transportTCP:
		return &plainEnd{conn: conn}, writeOffer(conn, &offer{Transport: transportTCP})
	}
	return nil, refusal("unknown")
}

func writeOffer(w io.Writer, o *offer) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

func readOffer(r io.Reader) (*offer, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > longestOffer {
		return nil, exitcode.Errorf(exitcode.IO, "an offer has %d bytes; at most %d are allowed", n, longestOffer)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	o := &offer{}
	return o, json.Unmarshal(text, o)
}

// plainEnd is either end of a connection that carries the messages itself.
type plainEnd struct{ conn net.Conn }

func (e *plainEnd) send(h *header, data []byte) error { return h.write(e.conn, data) }
func (e *plainEnd) head(bytes []byte) error {
	_, err := io.ReadFull(e.conn, bytes)
	return err
}
func (e *plainEnd) begin()                     {}
func (e *plainEnd) expect(int64)               {}
func (e *plainEnd) Read(b []byte) (int, error) { return e.conn.Read(b) }
func (e *plainEnd) close()                     {}

var hostName = sync.OnceValue(func() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
})
