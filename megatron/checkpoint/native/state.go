package native

import (
	"fmt"
	"strings"

	"monotron/megatron/checkpoint"
)

// State is what a run needs in addition to its tensors to continue bit for bit.
type State = checkpoint.State

// Report says what a save or load did, for a person.
type Report struct {
	Folder    string
	Iteration int64
	Bytes     int64 // of tensors, written or read

	Restored   []string // tensors
	Missing    []string // wanted, not there, waived
	Extra      []string // there, not wanted
	Converted  []string // from another dtype, with both
	Overridden []string // settings that the caller replaced; the caller fills it
	Removed    []int64  // iterations that keep-last took away
	Notes      []string // fallbacks and oddities, in order
}

func (r *Report) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Lines is the report of a load as text.
func (r *Report) Lines() []string {
	lines := append([]string{}, r.Notes...)
	lines = append(lines, fmt.Sprintf("loaded %s: iteration %d, %d tensors", r.Folder, r.Iteration, len(r.Restored)))
	for _, part := range []struct {
		what string
		list []string
	}{
		{"not in the checkpoint; these keep their initial values", r.Missing},
		{"in the checkpoint, but not used by this run", r.Extra},
		{"converted", r.Converted},
		{"overridden", r.Overridden},
	} {
		if len(part.list) > 0 {
			lines = append(lines, fmt.Sprintf("%s (%d): %s", part.what, len(part.list), shortList(part.list, 5)))
		}
	}
	return lines
}

// shortList names the first ones and counts the rest.
func shortList(list []string, shown int) string {
	if len(list) <= shown {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:shown], ", "), len(list)-shown)
}
