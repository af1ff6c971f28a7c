package notes

import (
	"encoding/json"
	"strings"

	"github.com/rs/zerolog"

	"monotron/fault"
)

// program begins the line of text that ends a program of ours that fails.
const program = "monotron: "

// Failure prints the error that ends this process, whatever the level: in text as a line
// that begins with "monotron: ", with no colour, so that a launcher knows it.
func (n *Notes) Failure(err error) {
	p := n.place
	p.mu.Lock()
	defer p.mu.Unlock()
	p.print(func() {
		if p.format == JSON {
			n.fields(p.log.WithLevel(zerolog.FatalLevel)).Int("code", int(fault.CodeOf(err))).Msg(err.Error())
			return
		}
		_, _ = p.to.Write([]byte(program + err.Error() + "\n")) // the exit code says it too
	})
}

// record is a note for machines.
type record struct {
	Level   string `json:"level"`
	Message string `json:"message"`
}

// IsRecord tells whether a line of stderr is a note for machines: nothing may be put
// in front of it.
func IsRecord(line string) bool {
	_, is := parse(line)
	return is
}

// FailureIn reads back what Failure printed: its message, and whether the line is one.
func FailureIn(line string) (message string, is bool) {
	if text, ok := strings.CutPrefix(line, program); ok {
		return strings.TrimSuffix(text, "\n"), true
	}
	r, ok := parse(line)
	return r.Message, ok && r.Level == zerolog.LevelFatalValue
}

func parse(line string) (r record, is bool) {
	if !strings.HasPrefix(line, `{"level":`) {
		return r, false
	}
	return r, json.Unmarshal([]byte(line), &r) == nil
}
