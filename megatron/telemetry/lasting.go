package telemetry

import "monotron/internal/exitcode"

// lasting is a sink whose failures of reading and writing (exitcode.IO) end no run: each
// stretch of them is one warning, and later steps are handed on as before.
type lasting struct {
	Sink
	name string // the option that asked for it
	warn func(format string, args ...any)
	lost int // steps since it began to fail
}

// Lasting is sink, asked for by the option name, for a run that continues without it.
func Lasting(name string, sink Sink, warn func(format string, args ...any)) Sink {
	return &lasting{Sink: sink, name: name, warn: warn}
}

// Take hands on a step.
func (l *lasting) Take(s *Step) error {
	err := l.Sink.Take(s)
	switch {
	case exitcode.CodeOf(err) == exitcode.IO:
		if l.lost++; l.lost == 1 {
			l.warn("%v; training continues and retries at each step", err)
		}
		return nil
	case err == nil && l.lost > 0:
		l.warn("%s can be written again; %d entries before iteration %d are missing", l.name, l.lost, s.Iteration)
		l.lost = 0
	}
	return err
}

// Close closes the sink. What it could not write is a warning.
func (l *lasting) Close() error {
	err := l.Sink.Close()
	if l.lost > 0 {
		l.warn("%s: %d entries at the end of the run are missing", l.name, l.lost)
	}
	if exitcode.CodeOf(err) != exitcode.IO {
		return err
	}
	if l.lost == 0 { // reported already otherwise
		l.warn("%v", err)
	}
	return nil
}
