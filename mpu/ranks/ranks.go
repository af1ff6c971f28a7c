package ranks

import (
	"time"

	"monotron/csrc/device"
	"monotron/mpu/comm/process"
	"monotron/mpu/health"
	"monotron/mpu/health/inject"
	"monotron/mpu/topology"
)

// Config says which ranks there are, how they reach each other, and who watches.
type Config struct {
	Sizes   topology.Sizes
	Kinds   []topology.Kind                // of groups that every rank joins; topology.All comes without asking
	Open    func() (*device.Device, error) // makes a rank's device
	Timeout time.Duration                  // longest wait of a rank for its peers; 0: any
	NCCL    bool                           // between GPUs of processes, where all have it
	Pinned  bool                           // NCCL's sums have one order whatever network it finds

	Process *process.World // the rank that this process is; nil: all are goroutines here
	Watch   *Watch         // nil: nobody watches; ranks that are processes always are
}

// Watch says how ranks are watched, and what goes wrong with them on purpose.
type Watch struct {
	health.Settings
	Folder string // for flight records and the verdict; "": none are kept
	Faults []inject.Fault
	Note   func(format string, args ...any) // writes a note
}

// unwinding is how long a rank may take to end by itself once the run is lost.
const unwinding = 5 * time.Second

// Run does work on every rank of this process and returns when all have ended, with the
// error of the rank that failed first or, where they are watched, the run's verdict.
// Ranks that are busy with something else than their peers after the run is lost are left
// behind: a run that has failed holds no machine, and its process is to end.
func Run(c Config, work func(*Rank) error) error {
	switch {
	case c.Process != nil:
		return runProcess(c, work)
	case c.Watch != nil:
		return runWatched(c, work)
	}
	return newGoroutines(c, work).run()
}
