package rendezvous

import (
	"fmt"
	"io"
	"time"
)

// longWait is a wait that is noted: when it begins to be long, then at
// growing intervals, once a minute in the end.
type longWait struct {
	notes        io.Writer
	since, again time.Time
}

// firstWord is when a wait begins to be long.
const firstWord = 7 * time.Second

func newLongWait(notes io.Writer) *longWait {
	now := time.Now()
	return &longWait{notes: notes, since: now, again: now.Add(firstWord)}
}

// say notes what is waited for, where it is time to.
func (w *longWait) say(now time.Time, format string, a ...any) {
	if now.Before(w.again) {
		return
	}
	waited := now.Sub(w.since)
	w.again = now.Add(min(2*waited, time.Minute))
	_, _ = fmt.Fprintf(w.notes, "%s (%d s so far)\n", fmt.Sprintf(format, a...), int(waited.Seconds())) // nobody else to tell
}
