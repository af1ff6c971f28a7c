package rendezvous

import (
	"fmt"
	"io"
	"time"
)

// patience is a wait of which a person is told: when it begins to be long, then at
// growing intervals, once a minute in the end.
type patience struct {
	notes        io.Writer
	since, again time.Time
}

// firstWord is when a wait begins to be long.
const firstWord = 7 * time.Second

func newPatience(notes io.Writer) *patience {
	now := time.Now()
	return &patience{notes: notes, since: now, again: now.Add(firstWord)}
}

// say tells what is waited for, where it is time to.
func (p *patience) say(now time.Time, format string, a ...any) {
	if now.Before(p.again) {
		return
	}
	waited := now.Sub(p.since)
	p.again = now.Add(min(2*waited, time.Minute))
	_, _ = fmt.Fprintf(p.notes, "%s (%d s so far)\n", fmt.Sprintf(format, a...), int(waited.Seconds())) // nobody else to tell
}
