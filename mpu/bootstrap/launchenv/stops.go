package launchenv

import (
	"os"
	"os/signal"
	"syscall"

	"monotron/internal/system"
)

// Stops are the signals that ask a run to save and end; SIGHUP, of a terminal that is
// closed, unless nohup has turned it off.
func Stops() []os.Signal {
	stops := []os.Signal{syscall.SIGTERM, syscall.SIGINT}
	if !signal.Ignored(syscall.SIGHUP) {
		stops = append(stops, syscall.SIGHUP)
	}
	return stops
}

// SignalName is a signal's usual name: SIGTERM, not "terminated".
func SignalName(s os.Signal) string {
	if number, ok := s.(syscall.Signal); ok {
		if name := system.SignalName(number); name != "" {
			return name
		}
	}
	return s.String()
}
