package health

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/mpu/comm"
)

// page is a rank's record: a head, a ring of calls, and the texts that they name.
// It is one stretch of memory of fixed shape, so that a file can be behind it.
type page struct {
	memory  []byte
	head    *head
	slots   []slot
	strings []byte
	file    string
	unmap   func() error
}

type head struct {
	Magic      [8]byte
	Version    uint32
	Rank       uint32
	World      uint32
	PID        uint32
	Phase      uint32
	Strings    uint32 // bytes used of the texts
	Step       int64
	PhaseStart int64 // nanoseconds since 1970, as all times here
	Written    int64 // calls so far; they are numbered from 1
	Ended      int64 // of them
	Waiting    int64 // number of the call that the rank sleeps in; 0: it is up
	_          [48]byte
}

// slot is one call. Texts are offsets in the page's texts; 0: none.
type slot struct {
	Number, Seq, Count, Step, Start, End int64
	Group, Op, Reduce, Site, Outer       uint32
	DType, Root                          int32
	Phase                                uint32
	Moves                                [slotMoves]move // of an exchange; Peer -1: none
}

// move is one message: its peer, and its number from one to the other.
type move struct {
	Peer   int32
	Number uint32 // with sendBit: it goes to the peer
}

const (
	sendBit   = 1 << 31
	slotMoves = 4
	kept      = 1000 // calls
	textBytes = 128 << 10
	version   = 1
)

var magic = [8]byte{'m', 't', 'f', 'l', 'i', 'g', 'h', 't'}

const pageBytes = int(unsafe.Sizeof(head{})) + kept*int(unsafe.Sizeof(slot{})) + textBytes

// FlightFile is the record of a rank in a run's folder.
func FlightFile(folder string, rank int) string {
	return filepath.Join(folder, fmt.Sprintf("flight_%05d.bin", rank))
}

func newPage(rank, world int, folder string) (*page, error) {
	p := &page{memory: make([]byte, pageBytes)}
	if folder != "" {
		p.file = FlightFile(folder, rank)
		var err error
		if p.memory, p.unmap, err = mapFile(p.file, pageBytes); err != nil {
			return nil, exitcode.Errorf(exitcode.IO, "the flight record %s cannot be written: %w; choose another --run-folder", p.file, err)
		}
	}
	p.lay()
	*p.head = head{Magic: magic, Version: version, Rank: uint32(rank), World: uint32(world), PID: uint32(os.Getpid()), Strings: 4}
	return p, nil
}

// lay lays the parts out in the memory.
func (p *page) lay() {
	at := unsafe.Pointer(&p.memory[0])
	p.head = (*head)(at)
	p.slots = unsafe.Slice((*slot)(unsafe.Add(at, unsafe.Sizeof(head{}))), kept)
	p.strings = p.memory[pageBytes-textBytes:]
}

func (p *page) slot(number int64) *slot { return &p.slots[(number-1)%kept] }

// put appends a text; 0 where it does not fit.
func (p *page) put(text string) uint32 {
	text = cut(text, 4<<10)
	at := p.head.Strings
	if int(at)+2+len(text) > textBytes {
		return 0
	}
	binary.LittleEndian.PutUint16(p.strings[at:], uint16(len(text)))
	copy(p.strings[at+2:], text)
	p.head.Strings = at + 2 + uint32(len(text))
	return at
}

// text is one that put has written; "" where at cannot be one.
func (p *page) text(at uint32) string {
	if at < 4 || int(at)+2 > textBytes {
		return ""
	}
	n := int(binary.LittleEndian.Uint16(p.strings[at:]))
	if int(at)+2+n > textBytes {
		return ""
	}
	return string(p.strings[int(at)+2 : int(at)+2+n])
}

// Call is one collective, or exchange of messages, as a rank called it.
type Call struct {
	Number int64         `json:"number"` // of the rank's calls, from 1
	Group  string        `json:"group"`  // name and members: "tp 2-3"
	Seq    int64         `json:"seq"`    // of the group's collectives, or exchanges
	Op     comm.Op       `json:"op"`
	Reduce comm.ReduceOp `json:"reduce,omitempty"`
	Root   int           `json:"root"` // rank of the world; -1: none
	Count  int64         `json:"count"`
	DType  string        `json:"dtype,omitempty"`
	Phase  string        `json:"phase"`
	Step   int64         `json:"step"`
	Site   string        `json:"site,omitempty"`  // direct caller
	Outer  string        `json:"outer,omitempty"` // first caller above the parallel layers
	Start  int64         `json:"start"`           // nanoseconds since 1970
	End    int64         `json:"end,omitempty"`   // 0: it had not ended

	Messages []Message `json:"messages,omitempty"` // of an exchange
}

// Message is one half of a point-to-point message.
type Message struct {
	Peer   int   `json:"peer"`
	Send   bool  `json:"send"`
	Number int64 `json:"n"` // from one rank to the other, in the group
}

// String names the call as verdicts do.
func (c *Call) String() string { return fmt.Sprintf("%s #%d of group %s", c.What(), c.Seq, c.Group) }

// What is what the ranks of a group must agree on.
func (c *Call) What() string {
	text := c.Op.String()
	if c.Reduce != 0 {
		text += "(" + c.Reduce.String() + ")"
	}
	if c.Count > 0 && c.Op != comm.Exchange {
		text += fmt.Sprintf(" of %d %s", c.Count, c.DType)
	}
	if c.Root >= 0 {
		text += " with rank " + itoa(c.Root)
	}
	return text
}

// Kept is the call as a verdict keeps it; nil of none.
func (c *Call) Kept() json.RawMessage {
	if c == nil {
		return nil
	}
	text, err := json.Marshal(c)
	if err != nil {
		return nil // an op that nobody knows
	}
	return text
}

func (p *page) call(s *slot) Call {
	c := Call{Number: s.Number, Group: p.text(s.Group), Seq: s.Seq, Op: comm.Op(s.Op), Reduce: comm.ReduceOp(s.Reduce), Root: int(s.Root), Count: s.Count,
		Phase: Phase(s.Phase).String(), Step: s.Step, Site: p.text(s.Site), Outer: p.text(s.Outer), Start: s.Start, End: s.End}
	if s.DType >= 0 && s.DType < int32(device.DTypes) && s.Count > 0 {
		c.DType = device.DType(s.DType).String()
	}
	for _, m := range s.Moves {
		if m.Peer >= 0 && c.Op == comm.Exchange {
			c.Messages = append(c.Messages, Message{int(m.Peer), m.Number&sendBit != 0, int64(m.Number &^ sendBit)})
		}
	}
	return c
}

// calls are what the ring holds, oldest first. One that a rank was writing when it
// was killed is left out.
func (p *page) calls() (list []Call) {
	last := p.head.Written
	for n := max(1, last-kept+1); n <= last && n > 0; n++ {
		if s := p.slot(n); s.Number == n {
			list = append(list, p.call(s))
		}
	}
	return list
}

func (p *page) close() error {
	if p.unmap == nil {
		return nil
	}
	heap := slices.Clone(p.memory)
	err := p.unmap()
	p.memory, p.unmap = heap, nil
	p.lay()
	return exitcode.With(exitcode.IO, err)
}

// Flight is one rank's record, read from its file.
type Flight struct {
	Rank    int       `json:"rank"`
	World   int       `json:"world"`
	PID     int       `json:"pid"`
	Phase   string    `json:"phase"`
	Step    int64     `json:"step"`
	At      string    `json:"at"`    // phase and step in words
	Since   time.Time `json:"since"` // in the phase
	Written int64     `json:"written"`
	Waiting int64     `json:"waiting,omitempty"` // number of the call that it sleeps in
	Calls   []Call    `json:"calls"`
}

// ReadFlight reads the record of a rank, also of one that was killed. A file that
// is not one is exitcode.BadData.
func ReadFlight(path string) (*Flight, error) {
	bytes, err := exitcode.ReadFile(path, int64(pageBytes))
	if err != nil {
		return nil, err
	}
	f, err := parseFlight(bytes)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: %w", path, err)
	}
	return f, nil
}

func parseFlight(bytes []byte) (*Flight, error) {
	if len(bytes) != pageBytes {
		return nil, fmt.Errorf("the file has %d bytes, but a flight record has %d", len(bytes), pageBytes)
	}
	aligned := make([]uint64, (pageBytes+7)/8)
	p := &page{memory: unsafe.Slice((*byte)(unsafe.Pointer(&aligned[0])), pageBytes)}
	copy(p.memory, bytes)
	p.lay()
	h := p.head
	if h.Magic != magic || h.Version != version {
		return nil, fmt.Errorf("the file is not a flight record, or is one of another version of this program")
	}
	if h.Written < 0 {
		return nil, fmt.Errorf("the flight record is damaged: its number of recorded calls of collectives is negative (%d)", h.Written)
	}
	f := &Flight{Rank: int(h.Rank), World: int(h.World), PID: int(h.PID), Phase: Phase(h.Phase).String(), Step: h.Step, At: At(Phase(h.Phase), h.Step),
		Since: time.Unix(0, h.PhaseStart), Written: h.Written, Waiting: h.Waiting, Calls: p.calls()}
	return f, nil
}

func itoa(n int) string { return strconv.Itoa(n) }

// cut shortens a text.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:limit]
}
