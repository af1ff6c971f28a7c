package failure

import (
	"encoding/json"
	"io"
	"strings"

	"monotron/internal/exitcode"
)

// mark begins a line that is for a launcher: a control character, which no message holds,
// then the verdict as JSON.
const mark = "\x1everdict "

// Tell reports to a launcher, in a line before a program's last words, why the program ends. It
// takes both away, and prints one program's words at the very end.
func Tell(w io.Writer, err error) {
	v := Of(-1, err).Brief()
	v.Code, v.Text = exitcode.CodeOf(err), cut(err.Error())
	if text, failed := json.Marshal(v); failed == nil {
		_, _ = io.WriteString(w, mark+string(text)+"\n") // nobody else to tell
	}
}

// Heard reads a line of a program's standard error; nil: it is an ordinary one.
func Heard(line string) *Verdict {
	text, is := strings.CutPrefix(line, mark)
	v := &Verdict{}
	if !is || json.Unmarshal([]byte(text), v) != nil {
		return nil
	}
	return v
}
