package table

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"monotron/internal/argv"
)

// Owners of flags: the groups of --help.
const (
	Model       = "model"
	Experts     = "experts"
	Layout      = "parallel layout"
	Distributed = "distributed"
	Training    = "training"
	Optimizer   = "optimizer and schedule"
	Precision   = "precision"
	Recompute   = "recomputation"
	Checkpoint  = "checkpoint"
	Data        = "data and tokenizer"
	Tuning      = "fine-tuning"
	Logging     = "logging"
	Own         = "monotron"
	DeepSpeed   = "Megatron-DeepSpeed"
	Outside     = "other parts of Megatron-LM"
)

var (
	rows = slices.Concat(
		modelFlags, latentFlags, mupFlags, fullFlags, convFlags, mambaFlags, deltaFlags, mtpFlags, activationFlags, oldModelFlags, otherModelFlags,
		expertFlags, otherExpertFlags,
		layoutFlags, otherLayoutFlags,
		distributedFlags, otherDistributedFlags,
		trainingFlags, otherTrainingFlags,
		optimizerFlags, muonFlags, stateOnHostFlags,
		precisionFlags, fp8Flags, noFP8Flags,
		recomputeFlags, offloadFlags,
		checkpointFlags, otherCheckpointFlags,
		dataFlags, otherDataFlags,
		tuneFlags,
		loggingFlags, otherLoggingFlags,
		ownFlags, deepspeedFlags,
		outsideFlags, tuningFlags, otherProgramFlags)
	index = indexOf(rows)
)

func indexOf(rows []Flag) map[string]*Flag {
	byName := map[string]*Flag{}
	for i := range rows {
		rows[i].row = i
		for _, name := range append([]string{rows[i].Name}, rows[i].Aliases...) {
			if byName[name] != nil {
				panic(fmt.Sprintf("arguments: two rows for --%s", name))
			}
			byName[name] = &rows[i]
		}
	}
	return byName
}

// Find is the row of a flag by any of its names (dashes or underscores, no
// leading dashes); nil where there is none. Rows are read, never written.
func Find(name string) *Flag { return index[strings.ReplaceAll(name, "_", "-")] }

// NameOf is the flag that sets a field of the Config, with its dashes, as --eval-iters sets EvalIters; the field's own
// name where there is none.
func NameOf(field string) string {
	for i := range rows {
		if rows[i].Class == Works && rows[i].To == field {
			return "--" + rows[i].Name
		}
	}
	return field
}

// Compare orders rows as All does.
func Compare(a, b *Flag) int { return cmp.Compare(a.row, b.row) }

// All lists the rows in the order of --help.
func All() []*Flag {
	all := make([]*Flag, len(rows))
	for i := range rows {
		all[i] = &rows[i]
	}
	return all
}

// Groups lists the rows in order, neighbours that say the same in one group: all
// that one reason is given for.
func Groups() (groups [][]*Flag) {
	for _, f := range All() {
		if n := len(groups); n > 0 && groups[n-1][0].saysTheSame(f) {
			groups[n-1] = append(groups[n-1], f)
			continue
		}
		groups = append(groups, []*Flag{f})
	}
	return groups
}

func (f *Flag) saysTheSame(g *Flag) bool {
	plain := func(f *Flag) bool { return f.Class != Works && len(f.Choices) == 0 && f.Default == "" }
	return plain(f) && plain(g) && f.Class == g.Class && f.NotYet == g.NotYet && f.Owner == g.Owner && f.Why == g.Why
}

// Arities is the complete table for the reader of an argument list, the same at every call: a
// search reads thousands of lists.
func Arities() argv.Set { return arities() }

var arities = sync.OnceValue(func() argv.Set {
	set := argv.Set{}
	for name, f := range index {
		set[name] = f.Arity()
	}
	return set
})
