package launch

import (
	"io"
	"os"
	"strings"

	"monotron/internal/logging"
)

// ownNotes is where the ranks' notes and launch's own go. Where the command that is started
// takes --log-format json, launch's are objects too, with the component launch.
func (o *options) ownNotes() io.Writer {
	n := logging.Stderr()
	if o.line.config.Log.Format != logging.JSON || n.Choose(logging.JSON, "") != nil {
		return os.Stderr
	}
	return &records{to: os.Stderr, notes: n.From("launch")}
}

// own begins the lines of launch's own notes.
const own = "launch: "

// records makes records of launch's own lines and passes on all others.
type records struct {
	to    io.Writer
	notes *logging.Notes
}

func (r *records) Write(b []byte) (int, error) {
	for line := range strings.Lines(string(b)) {
		text, ours := strings.CutPrefix(line, own)
		if ours {
			r.notes.Info("%s", strings.TrimSuffix(text, "\n"))
			continue
		}
		if n, err := io.WriteString(r.to, line); err != nil {
			return n, err
		}
	}
	return len(b), nil
}
