package health

import (
	"encoding/json"
	"fmt"
)

// message is what a rank sends the watcher. Between processes it is, inside a message of the rendezvous, a byte
// that says whether a heartbeat and a report follow, these (fields.go), and all else as JSON, if there is any.
type message struct {
	Hello  *Hello  `json:",omitempty"`
	Beat   *Beat   `json:"-"`
	Report *Report `json:",omitempty"`
	Bye    bool    `json:",omitempty"`
}

// The first byte of a message: what follows it.
const (
	hasBeat = 1 << iota
	hasReport
	hasAll = hasBeat | hasReport
)

// write is the message as it travels.
func (m *message) write() ([]byte, error) {
	f := &fields{bytes: []byte{0}}
	if m.Beat != nil {
		f.bytes[0] |= hasBeat
		f.beat(m.Beat)
	}
	if m.Report != nil {
		f.bytes[0] |= hasReport
		f.report(m.Report)
	}
	if m.Hello == nil && m.Report == nil && !m.Bye {
		return f.bytes, nil
	}
	rest, err := json.Marshal(m)
	return append(f.bytes, rest...), err
}

// read reads a message of another process.
func read(sent []byte) (*message, error) {
	m := &message{}
	if len(sent) == 0 || sent[0] > hasAll {
		return nil, fmt.Errorf("a message of %d bytes is invalid", len(sent))
	}
	f := &fields{bytes: sent[1:], reading: true}
	if sent[0]&hasBeat != 0 {
		m.Beat = &Beat{}
		f.beat(m.Beat)
	}
	if sent[0]&hasReport != 0 {
		m.Report = &Report{}
		f.report(m.Report)
	}
	if f.bad {
		return nil, fmt.Errorf("the heartbeat or the report in a message of %d bytes is invalid", len(sent))
	}
	if len(f.bytes) > 0 || m.Report != nil {
		if err := json.Unmarshal(f.bytes, m); err != nil {
			return nil, fmt.Errorf("a message is invalid: %w", err)
		}
	}
	return m, m.check()
}

// check refuses what no rank says.
func (m *message) check() error {
	if m.Hello != nil {
		for _, g := range m.Hello.Groups {
			if len(g.Name) > 256 {
				return fmt.Errorf("the name of a group has %d bytes, which is too long", len(g.Name))
			}
		}
	}
	if b := m.Beat; b != nil && (b.Phase >= Phases || b.Calls < 0 || b.Ended < 0 || b.Marks < 0 || b.Steps < 0) {
		return fmt.Errorf("a heartbeat has phase %d, %d calls, %d of them ended, and %d steps, which is not possible", b.Phase, b.Calls, b.Ended, b.Steps)
	}
	return nil
}
