// Package estimate says before a run what it will take: bytes of memory on every rank. They
// come from the run's own set-up and steps (training.Rehearsal) on a device that only
// counts, so there is no second description of a layer, a bucket or a schedule.
//
// Reading order: memory.go (what ranks hold, and when most), place.go (where in a run that
// is), micros.go (how many micro-batches tell all), savings.go (what flags would save),
// room.go and fits.go (what there is for a run, and the refusal of one that cannot have it).
package estimate
