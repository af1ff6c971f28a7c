package process

import (
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

// A road is what carries messages from one rank to another, once a connection
// between them stands: shared memory on one host, Gloo between hosts, and where
// neither can be had the connection itself. Who calls offers roads, in this order,
// until the other end takes one.
const (
	roadShared = "shm"
	roadGloo   = "gloo"
	roadTCP    = "tcp"
)

// sender is the calling end of a road.
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
// answer to one has the same road, or says why not.
type offer struct {
	Road      string
	From      int    `json:",omitempty"`
	Name      string `json:",omitempty"` // shm: the segment
	Room      int64  `json:",omitempty"` // shm: bytes of its ring
	Addresses []byte `json:",omitempty"` // gloo: of the offering end
	Refused   string `json:",omitempty"`
}

const longestOffer = 4 << 10

// offerTime is how long an end may take to answer.
const offerTime = 60 * time.Second

// roads are the choices of one process.
type roads struct {
	allowed []string
	gloo    func() (*engine.Engine, error) // opened when first needed

	mu      sync.Mutex // of all below
	opened  *engine.Engine
	meshes  []*engine.Mesh // of groups whose sums Gloo makes
	used    map[string][]int
	refused map[string]string // why a road could not be had, first reason
}

// outside is an address beyond this host's networks (RFC 5737): what leads there is the
// interface of the default route.
const outside = "203.0.113.1:9"

// newRoads reads MONOTRON_ROADS, for tests and for who must do without one.
func newRoads(l *links) *roads {
	r := &roads{allowed: []string{roadShared, roadGloo, roadTCP}, used: map[string][]int{}, refused: map[string]string{}}
	if text := os.Getenv("MONOTRON_ROADS"); text != "" {
		r.allowed = append(strings.Split(text, ","), roadTCP)
	}
	host, _, _ := net.SplitHostPort(l.listener.Addr().String()) // a listener's address is well formed
	if net.ParseIP(host).IsUnspecified() {
		host = towards(outside) // Gloo listens on one interface
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

// own remembers a mesh that no road ends.
func (r *roads) own(m *engine.Mesh) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meshes = append(r.meshes, m)
}

// abort ends Gloo's own sums.
func (r *roads) abort() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.meshes {
		m.Abort()
	}
}

// close ends the engine, if one was opened; the roads are closed, nobody calls.
func (r *roads) close() {
	for _, m := range r.meshes {
		m.Close()
	}
	if r.opened != nil {
		r.opened.Close()
	}
}

func (r *roads) allows(road string) bool { return slices.Contains(r.allowed, road) }

// note remembers which road a rank is reached by, or why one could not be had.
func (r *roads) note(road string, rank int, refused string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case refused == "":
		r.used[road] = append(r.used[road], rank)
	case r.refused[road] == "":
		r.refused[road] = refused
	}
}

// GlooMissing says why Gloo cannot be had here; nil: it can.
func GlooMissing() error { return engine.Available() }

// Roads says by which ways this rank has sent so far, and why not by a faster one.
func (p *World) Roads() string {
	r := p.links.roads
	r.mu.Lock()
	defer r.mu.Unlock()
	names := map[string]string{roadShared: "shared memory", roadGloo: "Gloo", roadTCP: "plain TCP"}
	var parts []string
	for _, road := range []string{roadShared, roadGloo, roadTCP} {
		if n := len(r.used[road]); n > 0 {
			parts = append(parts, names[road]+" to "+logging.Count(n, "rank"))
		} else if why := r.refused[road]; why != "" {
			parts = append(parts, fmt.Sprintf("no %s (%s)", names[road], why))
		}
	}
	return strings.Join(parts, ", ")
}

// offer finds the best road to a member that the other end takes.
func (l *links) offer(conn net.Conn, to *rendezvous.Member) (sender, error) {
	if err := conn.SetDeadline(time.Now().Add(offerTime)); err != nil {
		return nil, err
	}
	for _, road := range []string{roadShared, roadGloo, roadTCP} {
		if !l.roads.allows(road) || (road == roadShared && to.Host != hostName()) {
			continue
		}
		out, err := l.offerRoad(road, conn)
		if no := refusal(""); errors.As(err, &no) {
			l.roads.note(road, to.Rank, string(no))
			continue
		}
		if err == nil {
			l.roads.note(road, to.Rank, "")
			err = conn.SetDeadline(time.Time{})
			out.begin()
		}
		return out, err
	}
	return nil, fmt.Errorf("rank %d supports none of the transports that rank %d offers", to.Rank, l.process.rank)
}

// refusal is why a road cannot be had; another may.
type refusal string

func (r refusal) Error() string { return string(r) }

func (l *links) offerRoad(road string, conn net.Conn) (sender, error) {
	switch road {
	case roadShared:
		return l.offerShared(conn)
	case roadGloo:
		return l.offerGloo(conn)
	}
	_, err := l.propose(conn, &offer{Road: roadTCP})
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
	case answer.Road != o.Road:
		return nil, fmt.Errorf("the answer to %s is %s", o.Road, answer.Road)
	}
	return answer, nil
}

// answerOffers takes the first road that it can, and says from which rank it comes.
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
			return nil, -1, fmt.Errorf("unexpected offer from rank %d", o.From)
		}
		in, err := l.answer(conn, o)
		if no := refusal(""); errors.As(err, &no) {
			if err := writeOffer(conn, &offer{Road: o.Road, Refused: string(no)}); err != nil {
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
	return nil, -1, fmt.Errorf("no common transport")
}

// answer opens this end of an offered road, and says so to the other.
func (l *links) answer(conn net.Conn, o *offer) (receiver, error) {
	if !l.roads.allows(o.Road) {
		return nil, refusal(fmt.Sprintf("MONOTRON_ROADS of rank %d is without it", l.process.rank))
	}
	switch o.Road {
	case roadShared:
		return l.answerShared(conn, o)
	case roadGloo:
		return l.answerGloo(conn, o)
	case roadTCP:
		return &plainEnd{conn: conn}, writeOffer(conn, &offer{Road: roadTCP})
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
		return nil, exitcode.Errorf(exitcode.IO, "invalid offer of %d bytes", n)
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
