package health

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"monotron/mpu/comm"
)

// End says where the rank was when its record ended.
func (f *Flight) End() string {
	text := fmt.Sprintf("rank %d (process %d): in %s since %s, %d calls", f.Rank, f.PID, f.At, f.Since.UTC().Format("15:04:05.000"), f.Written)
	if n := len(f.Calls); n > 0 {
		text += fmt.Sprintf(", the last %s", &f.Calls[n-1])
	}
	if c := f.sleepsIn(); c != nil {
		text += fmt.Sprintf("; it slept in %s", c)
	}
	return text
}

func (f *Flight) sleepsIn() *Call {
	for i := range f.Calls {
		if f.Waiting > 0 && f.Calls[i].Number == f.Waiting {
			return &f.Calls[i]
		}
	}
	return nil
}

// parting is a call at which the members of a group part.
type parting struct {
	text  string
	awake bool // a rank that did not come was not waiting in another call itself
	start int64
}

// Divergence names the first call at which ranks of a group part.
func Divergence(flights []*Flight) string {
	var all []parting
	for group, ranks := range byGroup(flights) {
		if p := partsAt(flights, group, ranks); p != nil {
			all = append(all, *p)
		}
	}
	if len(all) == 0 {
		return "the records of all groups agree as far as they reach"
	}
	first := slices.MinFunc(all, func(a, b parting) int {
		switch {
		case a.awake != b.awake && a.awake:
			return -1
		case a.awake != b.awake:
			return 1
		case a.start < b.start:
			return -1
		}
		return 1
	})
	return "first divergence: " + first.text
}

// byGroup lists the ranks, as indexes in flights, that have called in each group.
func byGroup(flights []*Flight) map[string][]int {
	groups := map[string][]int{}
	for i, f := range flights {
		for _, c := range f.Calls {
			if !slices.Contains(groups[c.Group], i) {
				groups[c.Group] = append(groups[c.Group], i)
			}
		}
	}
	for group, list := range groups {
		_, text, _ := strings.Cut(group, " ")
		blocks, err := parseRanges(text)
		if err != nil {
			continue // a damaged record names no members
		}
		for i, f := range flights {
			if !slices.Contains(list, i) && slices.ContainsFunc(blocks, func(b block) bool { return b.has(f.Rank) }) {
				groups[group] = append(groups[group], i)
			}
		}
	}
	return groups
}

// partsAt is the first collective of a group at which its members part; nil: none.
func partsAt(flights []*Flight, group string, ranks []int) *parting {
	calls := map[int64]map[int]*Call{} // by number in the group, then by index in flights
	oldest, newest := map[int]int64{}, map[int]int64{}
	for _, i := range ranks {
		oldest[i], newest[i] = 1<<62, -1
		for j := range flights[i].Calls {
			c := &flights[i].Calls[j]
			if c.Group != group || c.Op == comm.Exchange {
				continue
			}
			if calls[c.Seq] == nil {
				calls[c.Seq] = map[int]*Call{}
			}
			calls[c.Seq][i] = c
			oldest[i], newest[i] = min(oldest[i], c.Seq), max(newest[i], c.Seq)
		}
	}
	seqs := make([]int64, 0, len(calls))
	for seq := range calls {
		seqs = append(seqs, seq)
	}
	slices.Sort(seqs)
	for _, seq := range seqs {
		if p := partsIn(flights, ranks, calls[seq], func(i int) bool { return newest[i] < seq }); p != nil {
			return p
		}
	}
	return nil
}

// partsIn compares one call of a group; absent reports which ranks never came so far.
func partsIn(flights []*Flight, ranks []int, there map[int]*Call, absent func(int) bool) *parting {
	var first *Call
	who := 0
	for _, i := range ranks {
		c := there[i]
		switch {
		case c == nil:
		case first == nil:
			first, who = c, flights[i].Rank
		case c.What() != first.What():
			return &parting{fmt.Sprintf("rank %d called %s%s, but rank %d called %s%s, both as call #%d of group %s", who, first.What(), calledAt(first), flights[i].Rank, c.What(), calledAt(c), c.Seq, c.Group),
				true, min(first.Start, c.Start)}
		}
	}
	if first == nil || first.End > 0 {
		return nil
	}
	for _, i := range ranks {
		if there[i] == nil && absent(i) {
			f := flights[i]
			return &parting{fmt.Sprintf("rank %d never entered %s%s, in which rank %d was; instead, rank %d was in %s", f.Rank, first, calledAt(first), who, f.Rank, f.At), f.sleepsIn() == nil, first.Start}
		}
	}
	return nil
}

// event is a call on the time line.
type event struct {
	rank int
	call *Call
}

// Timeline prints the last calls of all ranks by their begin, in seconds before the
// last of them; last 0: all. Hosts' clocks are taken as they are.
func Timeline(w io.Writer, flights []*Flight, last int) {
	var events []event
	for _, f := range flights {
		for i := range f.Calls {
			events = append(events, event{f.Rank, &f.Calls[i]})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(min(1, max(-1, a.call.Start-b.call.Start))) })
	if last > 0 && len(events) > last {
		events = events[len(events)-last:]
	}
	if len(events) == 0 {
		return
	}
	end := events[len(events)-1].call.Start
	for _, e := range events {
		c := e.call
		took := "never ended"
		if c.End > 0 {
			took = time.Duration(c.End - c.Start).Round(time.Microsecond).String()
		}
		fmt.Fprintf(w, "%12.6f s  rank %-4d %-9s step %-6d %-44s %-12s %s\n", float64(c.Start-end)/1e9, e.rank, c.Phase, c.Step, c, took, c.Outer)
	}
}

// traced is an event of a Chrome trace; times are microseconds.
type traced struct {
	Name string  `json:"name"`
	Kind string  `json:"ph"`
	Rank int     `json:"pid"`
	Row  string  `json:"tid"`
	At   float64 `json:"ts"`
	Took float64 `json:"dur"`
	Args *Call   `json:"args,omitempty"`
}

// Trace writes all calls as a Chrome trace: a process a rank, a row a group. A call
// that never ended lasts to the end of the trace.
func Trace(w io.Writer, flights []*Flight) error {
	// The time that the trace covers.
	from, to := int64(1<<62), int64(0)
	for _, f := range flights {
		for _, c := range f.Calls {
			from, to = min(from, c.Start), max(to, c.Start, c.End)
		}
	}
	if _, err := io.WriteString(w, "[\n"); err != nil {
		return err
	}
	// One object a call.
	separator := ""
	for _, f := range flights {
		for i := range f.Calls {
			c := &f.Calls[i]
			name, end := c.What(), c.End
			if end == 0 {
				name, end = name+" (never ended)", to
			}
			text, err := json.Marshal(traced{name, "X", f.Rank, c.Group, float64(c.Start-from) / 1e3, float64(end-c.Start) / 1e3, c})
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(w, "%s%s", separator, text); err != nil {
				return err
			}
			separator = ",\n"
		}
	}
	_, err := io.WriteString(w, "\n]\n")
	return err
}
