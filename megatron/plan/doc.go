// Package plan says before a run what it will take: bytes of memory on every rank, and
// seconds on a machine that a file describes. Both come from the run's own set-up and steps
// (training.Rehearsal) on a device that only counts, so no second description exists of
// a layer, a bucket or a schedule.
//
// Reading order: memory.go (each rank's memory and its peak), point.go (the point of a run at
// which the peak is), micros.go (how many micro-batches must be counted), savings.go (what
// flags would save), capacity.go and fits.go (free memory, and the refusal of a run that needs more).
// Then time: machine.go (a machine file), units.go (seconds of a micro-batch in each part of
// the model), seconds.go (the schedule on a clock, and what follows it), fit.go (a machine's
// constants from measured runs), measured.go, meetings.go and shared.go (machines whose ranks share
// threads), search.go (the layouts that training takes, and which of them are fastest),
// candidates.go (which are tried). formulas.go has the literature's rules, apart from all this.
package plan
