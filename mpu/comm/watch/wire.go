package watch

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

// message is what travels between a rank and the watcher: a length of four bytes,
// big endian, and this as JSON.
type message struct {
	Hello  *Hello  `json:",omitempty"`
	Beat   *Beat   `json:",omitempty"`
	Report *Report `json:",omitempty"`
	Ask    bool    `json:",omitempty"` // of the watcher: report
	Bye    bool    `json:",omitempty"`
}

// largest message that is taken.
const largest = 1 << 20

func writeMessage(w io.Writer, m *message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(text) > largest {
		return fmt.Errorf("a message of %d bytes, where %d are the most", len(text), largest)
	}
	_, err = w.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...))
	return err
}

// readMessage reads one message; memory grows with what comes.
func readMessage(r io.Reader) (*message, error) {
	var size [4]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > largest {
		return nil, fmt.Errorf("a message of %d bytes, where %d are the most", n, largest)
	}
	text, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err != nil {
		return nil, err
	}
	if len(text) < int(n) {
		return nil, io.ErrUnexpectedEOF
	}
	m := &message{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("a message that is not one: %w", err)
	}
	return m, m.check()
}

// check refuses what no rank says.
func (m *message) check() error {
	if m.Hello != nil {
		for _, g := range m.Hello.Groups {
			if len(g.Name) > 256 {
				return fmt.Errorf("a group's name of %d bytes", len(g.Name))
			}
		}
	}
	if b := m.Beat; b != nil && (b.Phase >= Phases || b.Calls < 0 || b.Ended < 0 || b.Steps < 0) {
		return fmt.Errorf("a beat of phase %d, %d calls, %d ended, %d steps", b.Phase, b.Calls, b.Ended, b.Steps)
	}
	return nil
}
