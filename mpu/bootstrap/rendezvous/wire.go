package rendezvous

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"monotron/mpu/comm/failure"
)

// message is what travels between a rank and the server: a length of four bytes,
// big endian, and this as JSON.
type message struct {
	Kind   string
	Member *Member `json:",omitempty"` // join
	Run    string  `json:",omitempty"` // joined
	List   []byte  `json:",omitempty"` // joined: all ranks, packed
	At     string  `json:",omitempty"` // beat: what the rank is at
	Report []byte  `json:",omitempty"` // kindBeat, kindReport: for the listener on rank 0

	Verdict *failure.Verdict `json:",omitempty"` // fail, verdict
}

// Kinds of messages.
const (
	kindJoin    = "join"
	kindJoined  = "joined"
	kindBeat    = "beat"
	kindReport  = "told"
	kindAsk     = "ask"
	kindFail    = "fail"
	kindBye     = "bye"
	kindVerdict = "verdict"
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

func frame(m *message) ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...), nil
}

// readMessage reads one message of at most limit bytes.
func readMessage(r io.Reader, limit int) (*message, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if int64(n) > int64(limit) {
		return nil, fmt.Errorf("a message of %d bytes exceeds the limit of %d", n, limit)
	}
	text := make([]byte, n)
	if _, err := io.ReadFull(r, text); err != nil {
		return nil, err
	}
	m := &message{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("invalid message: %w", err)
	}
	return m, nil
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
	bad := errors.New("the list of ranks is truncated")
	// Numbers and lengths of texts are varints; none reaches beyond the list.
	number := func() (uint64, error) {
		n, size := binary.Uvarint(list)
		if size <= 0 {
			return 0, bad
		}
		list = list[size:]
		return n, nil
	}
	text := func() (string, error) {
		n, err := number()
		if err != nil || n > uint64(len(list)) {
			return "", bad
		}
		s := string(list[:n])
		list = list[n:]
		return s, nil
	}
	// A member of each rank, in order.
	var members []Member
	for rank := range world {
		addr, err1 := text()
		host, err2 := text()
		report, err3 := text()
		pid, err4 := number()
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return nil, bad
		}
		members = append(members, Member{Rank: rank, World: world, Addr: addr, Host: host, Report: report, PID: int(pid)})
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
