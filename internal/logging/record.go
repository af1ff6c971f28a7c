package logging

import (
	"encoding/json"
	"strings"

	"github.com/rs/zerolog"

	"monotron/internal/exitcode"
)

// program begins the line of text that ends a program of ours that fails.
const program = "monotron: "

// Failure prints the error that ends this process, whatever the level: in text as a line
// that begins with "monotron: ", with no colour.
func (n *Notes) Failure(err error) {
	p := n.sink
	p.mu.Lock()
	defer p.mu.Unlock()
	p.print(func() {
		if p.format == JSON {
			n.fields(p.log.WithLevel(zerolog.FatalLevel)).Int("code", int(exitcode.CodeOf(err))).Msg(err.Error())
			return
		}
		_, _ = p.to.Write([]byte(program + err.Error() + "\n")) // the exit code says it too
	})
}

// IsRecord reports whether a line of stderr is a note for machines: nothing may be put
// in front of it.
func IsRecord(line string) bool {
	return strings.HasPrefix(line, `{"level":`) && json.Valid([]byte(line))
}
