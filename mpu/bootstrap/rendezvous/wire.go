package rendezvous

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"monotron/mpu/comm/failure"
)

// message is what travels between ranks and the server: a length of four bytes, big endian, and this as JSON, or,
// where it is heartbeats or a report, those in bytes. Several ranks share a connection, those of a host (relay.go): each has a
// seat there, by which messages from it and to it are distinguished. Seat 0 is that of the rank that has made the connection.
type message struct {
	Kind   string
	Seat   int     `json:",omitempty"` // of the rank that it is from, or to
	Member *Member `json:",omitempty"` // kindJoin
	Run    string  `json:",omitempty"` // kindJoined
	List   []byte  `json:",omitempty"` // kindJoined: all ranks, packed
	From   int     `json:",omitempty"` // kindBeat to a rank: the rank at the other end of its connection
	At     string  `json:",omitempty"` // kindBeat to a rank: what that one is at

	Verdict *failure.Verdict `json:",omitempty"` // kindFail, kindRefused, kindVerdict

	beats  []Beat // kindBeat from ranks
	report []byte // kindReport: for the listener on rank 0
}

// Beat is one heartbeat.
type Beat struct {
	Seat   int    // of the rank on its connection
	At     []byte // what the rank is at, in words
	Report []byte // for the listener on rank 0
}

// Kinds of messages. From a rank:
const (
	kindJoin   = "join"
	kindBeat   = "beat" // also to all ranks of a connection
	kindReport = "told"
	kindFail   = "fail"
	kindBye    = "bye"
	kindGone   = "gone" // its connection with the rank that relays for it is lost
)

// To all ranks of a connection, or to one of them (its seat).
const (
	kindJoined  = "joined"  // to all
	kindVerdict = "verdict" // to all
	kindRefused = "refused" // to one that does not fit
	kindAsk     = "ask"     // to one
)

// Largest messages: of a joining rank, of a joined one, and of the server about so many
// ranks.
const (
	fromCaller = 1 << 16
	fromRank   = 1 << 20
)

func fromServer(world int) int { return 1<<20 + 1024*world }

// longestName is how many bytes are passed on of a text that a rank sends.
const longestName = 256

// frame is a message as it travels.
func frame(m *message) ([]byte, error) {
	var text []byte
	var err error
	switch {
	case m.Kind == kindReport:
		text = packReport(m.Seat, m.report)
	case m.beats != nil:
		text = packBeats(m.beats)
	default:
		text, err = json.Marshal(m)
	}
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text))), text...), nil
}

// JoinFrame and BeatsFrame are what a rank says for those of its host, as it travels: of a test of load, which has many such ranks.
func JoinFrame(seat int, m *Member) []byte {
	return mustFrame(&message{Kind: kindJoin, Seat: seat, Member: m})
}

func BeatsFrame(beats []Beat) []byte { return mustFrame(&message{Kind: kindBeat, beats: beats}) }

func ReportFrame(seat int, report []byte) []byte {
	return mustFrame(&message{Kind: kindReport, Seat: seat, report: report})
}

// reader reads the messages of a connection. A buffer takes what has come with one call of the system.
type reader struct {
	from  *bufio.Reader
	frame []byte // the last message as it has travelled; the next one overwrites it
	beats []Beat // of it
}

func newReader(from io.Reader) *reader { return &reader{from: bufio.NewReader(from)} }

// message reads one of at most limit bytes. Reports in it are of the reader's memory: they last until the next one.
func (r *reader) message(limit int) (*message, error) {
	r.frame = append(r.frame[:0], 0, 0, 0, 0)
	if _, err := io.ReadFull(r.from, r.frame); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(r.frame)
	if int64(n) > int64(limit) {
		return nil, fmt.Errorf("a message of %d bytes exceeds the limit of %d bytes", n, limit)
	}
	r.frame = slices.Grow(r.frame, int(n))[:4+n]
	text := r.frame[4:]
	if _, err := io.ReadFull(r.from, text); err != nil {
		return nil, err
	}
	m := &message{}
	var err error
	switch {
	case n > 0 && text[0] == beatsMark:
		r.beats, err = unpackBeats(r.beats[:0], text)
		m.Kind, m.beats = kindBeat, r.beats
	case n > 0 && text[0] == reportMark:
		m.Kind = kindReport
		m.Seat, m.report, err = unpackReport(text)
	default:
		err = json.Unmarshal(text, m)
	}
	if err != nil {
		return nil, fmt.Errorf("a message is invalid: %w", err)
	}
	return m, nil
}

// What begins heartbeats and a report, and no JSON.
const (
	beatsMark  = 1
	reportMark = 2
)

// packBeats writes heartbeats: the mark, then of each its seat, its length and its text and report.
func packBeats(beats []Beat) (text []byte) {
	text = append(text, beatsMark)
	for _, b := range beats {
		text = binary.AppendUvarint(text, uint64(b.Seat))
		text = append(binary.AppendUvarint(text, uint64(len(b.At))), b.At...)
		text = append(binary.AppendUvarint(text, uint64(len(b.Report))), b.Report...)
	}
	return text
}

// unpackBeats appends what packBeats wrote.
func unpackBeats(beats []Beat, text []byte) ([]Beat, error) {
	p := packed{text[1:]}
	for len(p.left) > 0 {
		seat, err1 := p.number()
		at, err2 := p.bytes()
		report, err3 := p.bytes()
		if err := errors.Join(err1, err2, err3); err != nil || seat > math.MaxInt32 {
			return nil, errTruncated
		}
		beats = append(beats, Beat{int(seat), at, report})
	}
	return beats, nil
}

// packReport writes a report: the mark, the seat of the rank, and what it reports.
func packReport(seat int, report []byte) []byte {
	return append(binary.AppendUvarint([]byte{reportMark}, uint64(seat)), report...)
}

// unpackReport reads what packReport wrote.
func unpackReport(text []byte) (seat int, report []byte, err error) {
	p := packed{text[1:]}
	n, err := p.number()
	if err != nil || n > math.MaxInt32 {
		return 0, nil, errTruncated
	}
	return int(n), p.left, nil
}

// packed are numbers and texts as varints and lengths; none reaches beyond the end.
type packed struct{ left []byte }

var errTruncated = errors.New("a list of ranks is truncated")

func (p *packed) number() (uint64, error) {
	n, size := binary.Uvarint(p.left)
	if size <= 0 {
		return 0, errTruncated
	}
	p.left = p.left[size:]
	return n, nil
}

func (p *packed) bytes() ([]byte, error) {
	n, err := p.number()
	if err != nil || n > uint64(len(p.left)) {
		return nil, errTruncated
	}
	text := p.left[:n]
	p.left = p.left[n:]
	return text, nil
}

func writeMessage(w io.Writer, m *message) error {
	bytes, err := frame(m)
	if err != nil {
		return err
	}
	_, err = w.Write(bytes)
	return err
}

// pack writes the members by rank: addresses, hosts, what they tell, and process numbers. A
// thousand ranks read a list of a thousand, so it is not JSON.
func pack(members []Member) (list []byte) {
	for _, m := range members {
		for _, text := range []string{m.Addr, m.Host, m.Report} {
			list = append(binary.AppendUvarint(list, uint64(len(text))), text...)
		}
		list = binary.AppendUvarint(list, uint64(m.PID))
	}
	return list
}

// unpack reads what pack wrote of so many ranks.
func unpack(list []byte, world int) ([]Member, error) {
	p := packed{list}
	// A member of each rank, in order.
	var members []Member
	for rank := range world {
		addr, err1 := p.bytes()
		host, err2 := p.bytes()
		report, err3 := p.bytes()
		pid, err4 := p.number()
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return nil, errTruncated
		}
		members = append(members, Member{Rank: rank, World: world, Addr: string(addr), Host: string(host), Report: string(report), PID: int(pid)})
	}
	return members, nil
}

// cut shortens a text that came from outside.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:limit] + " ..."
}

// mustFrame is for messages of the server's own making.
func mustFrame(m *message) []byte {
	bytes, err := frame(m)
	if err != nil {
		panic(err)
	}
	return bytes
}

func verdictFrame(v *failure.Verdict) []byte {
	return mustFrame(&message{Kind: kindVerdict, Verdict: v})
}

func beatFrame(from int, at string) []byte {
	return mustFrame(&message{Kind: kindBeat, From: from, At: at})
}

func askFrame(seat int) []byte { return mustFrame(&message{Kind: kindAsk, Seat: seat}) }

// refusal is for the rank of one seat.
func refusal(seat int, v *failure.Verdict) []byte {
	return mustFrame(&message{Kind: kindRefused, Seat: seat, Verdict: v})
}
