package launchenv

import (
	"os"
	"os/signal"
	"path/filepath"
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

// closedOutput is a file in the run's folder, by which monotron launch says that it stops the ranks because nobody reads
// what they print.
const closedOutput = "output_closed"

// SayClosed makes that file in a run's folder.
func SayClosed(folder string) {
	_ = os.WriteFile(filepath.Join(folder, closedOutput), nil, 0o600) // without it the ranks name the signal
}

// Unsay removes that file, of this run or an earlier one.
func Unsay(folder string) { _ = os.Remove(filepath.Join(folder, closedOutput)) } // there may be none

// StopName says what has stopped a process that got a signal: the signal, or why monotron launch has sent it.
func StopName(s os.Signal, get func(string) string) string {
	if s == syscall.SIGTERM && get(Own) != "" && get(RunFolder) != "" {
		if _, err := os.Stat(filepath.Join(get(RunFolder), closedOutput)); err == nil {
			return "closed standard output"
		}
	}
	return SignalName(s)
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
