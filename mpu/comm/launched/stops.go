package launched

import (
	"os"
	"os/signal"
	"syscall"
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
