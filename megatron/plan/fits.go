package plan

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/config"
)

// Unfit is a run that cannot have the memory that it takes.
type Unfit struct {
	Ranks    []Rank // that share the memory
	Capacity Capacity
	Nearest  []string // flags with which it would fit, the fewest first
	Every    bool     // none of the flags tried would fit
}

// Total is what the ranks hold together, at the same time where they reach their peaks so.
func (u *Unfit) Total() (bytes int64) { return total(u.Ranks) }

// total is what ranks take of the memory of a host, their devices' memory being that.
func total(all []Rank) (bytes int64) { return peaks(all) + copies(all) }

func peaks(all []Rank) (bytes int64) {
	for _, r := range all {
		bytes += r.Peak
	}
	return bytes
}

// copies is what memory checkpoints take.
func copies(all []Rank) (bytes int64) {
	for _, r := range all {
		bytes += r.Copies
	}
	return bytes
}

func (u *Unfit) Error() string {
	worst := Largest(u.Ranks)
	var parts []string
	for p, bytes := range worst.AtPeak {
		if bytes > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", device.Size(bytes), device.Purpose(p)))
		}
	}
	whose := "the rank on this host needs"
	if n := len(u.Ranks); n > 1 {
		whose = fmt.Sprintf("the %d ranks on this host need", n)
	}
	text := fmt.Sprintf("the run does not fit into memory: %s %s, but only %s are available. The largest rank is rank %d, with %s in the %s: %s", whose, device.Size(u.Total()), u.Capacity,
		worst.Number, device.Size(worst.Peak), worst.At, strings.Join(parts, ", "))
	if n := copies(u.Ranks); n > 0 {
		text += fmt.Sprintf("; --memory-checkpoint-interval needs %s", device.Size(n))
	}
	switch {
	case len(u.Nearest) > 0:
		text += ". The following would fit: " + strings.Join(u.Nearest, "; or ")
	case u.Every:
		text += ". The run does not fit even with all flags that save memory: use a smaller model, or more machines"
	}
	return text + " (--no-plan starts the run anyway)"
}

// searchTime is how long a refusal searches for layouts that would fit.
const searchTime = 500 * time.Millisecond

// Check compares what some ranks of c's run take with the memory that they share: Unfit, with
// the nearest changes that would do. The plan is theirs, by rank.
func (o Options) Check(c config.Run, numbers []int, capacity Capacity) (plan []Rank, err error) {
	if plan, err = o.Ranks(c, numbers); err != nil || total(plan) <= capacity.Bytes {
		return plan, err
	}
	u := &Unfit{Ranks: plan, Capacity: capacity}
	u.Nearest, u.Every = o.nearest(c, numbers, capacity)
	return plan, exitcode.With(exitcode.Internal, u)
}

// Program is about what a process takes next to its tensors: code, runtime, buffers of data and libraries. Measured were
// 50 to 61 MiB, of small models on a CPU.
const Program = 64 << 20

// Tight says that ranks in so many processes fit by their tensors, and might not with the processes themselves; "":
// they do. The kernel, not the run, notices that.
func Tight(ranks []Rank, processes int, capacity Capacity) string {
	tensors, others := total(ranks), int64(processes)*Program
	if capacity == Unlimited || tensors > capacity.Bytes || tensors+others <= capacity.Bytes {
		return ""
	}
	return fmt.Sprintf("the run may not fit into memory: its tensors need %s and the program about %s more, but only %s are available. If memory runs out, the kernel kills a process without a message; use monotron plan run to see which flags save memory",
		device.Size(tensors), device.Size(others), capacity)
}

// nearest are up to three sets of flags with which the run fits, no set within another,
// those with the fewest flags first; none: not even all together would do.
func (o Options) nearest(c config.Run, numbers []int, capacity Capacity) (found []string, none bool) {
	var list []Change
	for _, change := range o.changes(&c) {
		if !change.more {
			list = append(list, change)
		}
	}
	var sets []uint // the smallest first: one flag, two, ...
	for set := uint(1); set < 1<<len(list); set++ {
		if !doubled(list, set) {
			sets = append(sets, set)
		}
	}
	slices.SortStableFunc(sets, func(a, b uint) int { return bits.OnesCount(a) - bits.OnesCount(b) })
	fits := func(set uint) bool {
		smaller := c
		for i, change := range list {
			if set>>i&1 == 1 {
				change.make(&smaller)
			}
		}
		plan, err := o.Ranks(smaller, numbers)
		return err == nil && total(plan) <= capacity.Bytes
	}
	if len(sets) == 0 || !fits(sets[len(sets)-1]) {
		return nil, true
	}
	var taken []uint
	for end := time.Now().Add(searchTime); len(taken) < 3 && len(sets) > 0; sets = sets[1:] {
		set := sets[0]
		if slices.ContainsFunc(taken, func(t uint) bool { return t&set == t }) || time.Now().After(end) && len(sets) > 1 && len(taken) > 0 {
			continue
		}
		if time.Now().After(end) {
			set, sets = sets[len(sets)-1], sets[len(sets)-1:] // all together are known to do
		} else if !fits(set) {
			continue
		}
		taken = append(taken, set)
		found = append(found, flagsOf(list, set))
	}
	return found, false
}

// doubled reports whether two changes of the set are about the same.
func doubled(list []Change, set uint) bool {
	taken := map[subject]bool{}
	for i, change := range list {
		if set>>i&1 == 0 || change.about == alone {
			continue
		}
		if taken[change.about] {
			return true
		}
		taken[change.about] = true
	}
	return false
}

func flagsOf(list []Change, set uint) string {
	var words []string
	for i, change := range list {
		if set>>i&1 == 1 {
			words = append(words, change.Flags)
		}
	}
	return strings.Join(words, " ")
}

// Exhausted makes a rank's lack of memory an error that says which flags would have saved how
// much of the memory planned for the rank.
func (o Options) Exhausted(c config.Run, rank int, e *device.OutOfMemory) error {
	var lines []string
	add := func(bytes int64, flag string) {
		if bytes > 0 {
			lines = append(lines, Saving{Change{Flags: flag}, bytes}.String())
		}
	}
	add(e.Graphs, "--cuda-graph-impl none")
	add(e.Fused, "--attention-backend flash")
	planned, err := o.Of(c, rank)
	if err == nil {
		c.Graphs = false // named above, as it was
		for _, s := range o.Savings(c, rank, planned.Peak) {
			lines = append(lines, s.String())
		}
	}
	switch {
	case len(lines) == 0:
		return exitcode.Errorf(exitcode.Internal, "%w. The model is too large for this device: lower --num-layers or --hidden-size, or check the sizes for typing errors", e)
	case err != nil:
		return exitcode.Errorf(exitcode.Internal, "%w. To save memory: %s", e, strings.Join(lines, "; "))
	}
	return exitcode.Errorf(exitcode.Internal, "%w. According to the plan, the rank needs %s in the %s; %s", e, device.Size(planned.Peak), planned.At, strings.Join(lines[:min(4, len(lines))], "; "))
}

// IsUnfit reports whether err is the refusal of a run that does not fit.
func IsUnfit(err error) bool {
	var u *Unfit
	var h *Overfull
	return errors.As(err, &u) || errors.As(err, &h)
}
