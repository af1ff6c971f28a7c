package health

import (
	"encoding/json"
	"fmt"
)

// message is what a rank sends the watcher; between processes it is JSON, inside a
// message of the rendezvous.
type message struct {
	Hello  *Hello  `json:",omitempty"`
	Beat   *Beat   `json:",omitempty"`
	Report *Report `json:",omitempty"`
	Bye    bool    `json:",omitempty"`
}

// read reads a message of another process.
func read(sent []byte) (*message, error) {
	m := &message{}
	if err := json.Unmarshal(sent, m); err != nil {
		return nil, fmt.Errorf("invalid message: %w", err)
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
	if b := m.Beat; b != nil && (b.Phase >= Phases || b.Calls < 0 || b.Ended < 0 || b.Marks < 0 || b.Steps < 0) {
		return fmt.Errorf("a beat of phase %d, %d calls, %d ended, %d steps", b.Phase, b.Calls, b.Ended, b.Steps)
	}
	return nil
}
