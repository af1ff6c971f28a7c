package health

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/comm"
	"monotron/mpu/comm/failure"
)

// view is what is known of a rank.
type view struct {
	hello  *Hello
	groups map[string]int // index in hello.Groups by its key
	beat   *Beat
	heard  time.Time
	moved  time.Time // when it last did something
	over   bool      // it has said that it ends
	report *Report
}

// grace is how old a beat may be that a verdict rests on.
const grace = 4 * time.Second

// standsStill reports whether no rank has done anything for limit, and all are heard of: never
// without a limit, nor once all have ended.
func standsStill(ranks []view, now time.Time, limit time.Duration) bool {
	alive := 0
	for i := range ranks {
		v := &ranks[i]
		switch {
		case v.over:
			continue
		case v.hello == nil || v.beat == nil || now.Sub(v.heard) > grace:
			return false
		case limit <= 0 || now.Sub(v.moved) < limit:
			return false
		}
		alive++
	}
	return alive > 0
}

// frozen is a run that stands still: what was known of its ranks and groups then.
type frozen struct {
	ranks  []view
	groups map[string][]int // members by key
}

// diagnose finds out why the run stands still: nil where all are done. Its time grows with
// the ranks and the groups they wait in, not with their squares.
func (f *frozen) diagnose() *failure.Verdict {
	s := newStill(f)
	if culprit := s.culprit(); culprit >= 0 {
		return s.absent(culprit)
	}
	return s.cycle()
}

// still is the wait-for graph: from ranks to the stops they wait at, and from
// there to the ranks that have not come.
type still struct {
	*frozen
	stops  []stop
	at     []int   // by rank: the stop it waits at; -1: none
	missed [][]int // by rank: the stops it has not come to, ascending
}

// stop is where ranks wait: a collective of a group, or one rank's exchange.
type stop struct {
	waiting []int
	lacks   []int // ascending; a rank may lack itself, whose device has not begun the call
}

// newStill draws the graph.
func newStill(f *frozen) *still {
	s := &still{frozen: f, at: make([]int, len(f.ranks)), missed: make([][]int, len(f.ranks))}
	type collective struct {
		group string
		seq   int64
	}
	// A stop for each collective that ranks wait in, with those who are absent; an exchange is one for each rank.
	known := map[collective]int{}
	for rank := range s.ranks {
		s.at[rank] = -1
		c := s.waits(rank)
		if c == nil {
			continue
		}
		key := collective{c.Group, c.Seq}
		id, met := known[key]
		if c.Op == comm.Exchange || !met {
			id = len(s.stops)
			s.stops = append(s.stops, stop{lacks: s.absentees(rank, c)})
			if c.Op != comm.Exchange {
				known[key] = id
			}
		}
		s.at[rank] = id
		s.stops[id].waiting = append(s.stops[id].waiting, rank)
	}
	// For each rank the stops that wait for it.
	for id, stop := range s.stops {
		for _, rank := range stop.lacks {
			s.missed[rank] = append(s.missed[rank], id)
		}
	}
	return s
}

// absentees are the ranks that have not come to a call in which rank waits, ascending.
func (s *still) absentees(rank int, c *Call) (list []int) {
	if c.Op != comm.Exchange {
		for _, peer := range s.groups[c.Group] {
			if count, known := s.count(peer, c.Group); s.known(peer) && (!known || count.Entered <= c.Seq) {
				list = append(list, peer)
			}
		}
		return list
	}
	for _, m := range c.Messages {
		if s.known(m.Peer) && m.Peer != rank && !s.met(m, rank, c.Group) {
			list = append(list, m.Peer)
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// waits is the call that a rank sleeps in; nil: it does not.
func (s *still) waits(rank int) *Call {
	if v := &s.ranks[rank]; v.beat != nil && !v.over {
		return v.beat.Waiting
	}
	return nil
}

// count is how far a rank is in a group.
func (s *still) count(rank int, group string) (c Count, known bool) {
	if !s.known(rank) {
		return c, false
	}
	v := &s.ranks[rank]
	i, known := v.groups[group]
	if !known || v.beat == nil || i >= len(v.beat.Groups) {
		return c, false
	}
	return v.beat.Groups[i], true
}

// lacks reports whether a rank waits for another, and lacking for how many and the first of them.
func (s *still) lacks(rank, other int) bool {
	if s.at[rank] < 0 || rank == other {
		return false
	}
	_, lacks := slices.BinarySearch(s.stops[s.at[rank]].lacks, other)
	return lacks
}

func (s *still) lacking(rank int) (n, first int) {
	first = -1
	if s.at[rank] < 0 {
		return 0, first
	}
	list := s.stops[s.at[rank]].lacks
	n = len(list)
	if _, self := slices.BinarySearch(list, rank); self {
		n--
	}
	for _, other := range list {
		if other != rank {
			return n, other
		}
	}
	return n, first
}

func (s *still) known(rank int) bool { return rank >= 0 && rank < len(s.ranks) }

// met reports whether the other end of a message of rank is there.
func (s *still) met(m Message, rank int, group string) bool {
	count, known := s.count(m.Peer, group)
	if !known {
		return false
	}
	if m.Send {
		return int64(count.Received[int32(rank)]) > m.Number
	}
	return int64(count.Sent[int32(rank)]) > m.Number
}

// culprit is the rank that waits for nobody and that most others wait for, one
// behind the other; -1: there is none.
func (s *still) culprit() int {
	best, most := -1, -1
	waiting := s.counter()
	for rank := range s.ranks {
		if s.at[rank] >= 0 {
			continue
		}
		n := waiting(rank)
		if s.ranks[rank].over && n == 0 {
			continue // it is done, and nobody misses it
		}
		if n > most || (n == most && s.ranks[rank].moved.Before(s.ranks[best].moved)) {
			best, most = rank, n
		}
	}
	return best
}

// counter counts the ranks that wait for one that waits for nobody itself, maybe through
// others. Ranks that have missed the same stops are counted once.
func (s *still) counter() func(rank int) int {
	seen := make([]int, len(s.stops)) // the last round in which a stop was visited
	round := 0
	counts := map[string]int{}
	return func(rank int) (n int) {
		key := fmt.Sprint(s.missed[rank])
		if n, counted := counts[key]; counted {
			return n
		}
		round++
		queue := slices.Clone(s.missed[rank])
		for len(queue) > 0 {
			id := queue[len(queue)-1]
			queue = queue[:len(queue)-1]
			if seen[id] == round {
				continue
			}
			seen[id] = round
			n += len(s.stops[id].waiting) // a rank waits at one stop, so that none counts twice
			for _, other := range s.stops[id].waiting {
				queue = append(queue, s.missed[other]...)
			}
		}
		counts[key] = n
		return n
	}
}

// absent is the verdict that a rank does not come where others wait for it.
func (s *still) absent(rank int) *failure.Verdict {
	v := s.verdict(failure.Stall, rank)
	state := &s.ranks[rank]
	where := "has ended"
	if !state.over {
		where = fmt.Sprintf("is in %s and has done nothing for %d s", At(state.beat.Phase, state.beat.Step), int(time.Since(state.moved).Seconds()))
		if state.beat.Stalled {
			where += ": its GPU does not complete its work"
		}
	}
	v.Text = fmt.Sprintf("rank %d makes no progress: it %s", rank, where)
	for other := range s.ranks {
		c := s.waits(other)
		if c == nil || !s.lacks(other, rank) {
			continue
		}
		missed := "never entered"
		if c.Op == comm.Exchange {
			missed = "never took part in"
		}
		v.Text = fmt.Sprintf("rank %[1]d %[2]s %[3]s, where rank %[4]d waits%[5]s; rank %[1]d %[6]s", rank, missed, s.named(c), other, calledAt(c), where)
		break
	}
	return v
}

func calledAt(c *Call) string {
	if c.Outer == "" {
		return ""
	}
	return " (" + c.Outer + ")"
}

// named is a call with the number of its group among those of its name:
// "all_reduce(sum) of 5 f32 #640 of tp group 3 (ranks 12,13)".
func (s *still) named(c *Call) string {
	name, ranks, _ := strings.Cut(c.Group, " ")
	firsts := map[int]bool{} // ranks that are the first of a group of the name
	for rank := range s.ranks {
		if s.ranks[rank].hello == nil {
			continue
		}
		for _, g := range s.ranks[rank].hello.Groups {
			if first, ok := firstOf(g.Ranks); ok && g.Name == name {
				firsts[first] = true
			}
		}
	}
	mine, ok := firstOf(ranks)
	if !ok {
		return c.String()
	}
	number := 0
	for first := range firsts {
		if first < mine {
			number++
		}
	}
	return fmt.Sprintf("%s #%d of %s group %d (ranks %s)", c.What(), c.Seq, name, number, ranks)
}

// firstOf is the first number of a text of ranges.
func firstOf(text string) (first int, ok bool) {
	if at := strings.IndexAny(text, ",-"); at >= 0 {
		text = text[:at]
	}
	first, err := strconv.Atoi(text)
	return first, err == nil
}

// cycle is the verdict where all wait: they have called in different orders.
func (s *still) cycle() *failure.Verdict {
	rank := s.odd()
	if rank < 0 {
		return nil // everybody is done
	}
	v := s.verdict(failure.Mismatch, rank)
	c := s.waits(rank)
	n, other := s.lacking(rank)
	if n == 0 {
		v.Kind = failure.Stall
		v.Text = fmt.Sprintf("all ranks have entered %s, but this call does not end on rank %d: bytes were lost between the ranks", s.named(c), rank)
		return v
	}
	v.Text = fmt.Sprintf("the ranks wait for each other: rank %d is in %s%s, which rank %d never entered", rank, s.named(c), calledAt(c), other)
	if theirs := s.waits(other); theirs != nil {
		v.Text += fmt.Sprintf("; rank %d is in %s%s", other, s.named(theirs), calledAt(theirs))
	}
	v.Text += fmt.Sprintf("; the calls of rank %d differ from those of the other ranks", rank)
	return v
}

// odd is the rank whose call fits least to what ranks do in groups of the same name;
// -1: nobody waits.
func (s *still) odd() int {
	best, most := -1, -1
	furthest := s.furthest()
	for rank := range s.ranks {
		c := s.waits(rank)
		if c == nil {
			continue
		}
		score := 0
		if n, _ := s.lacking(rank); c.Op != comm.Exchange && n == len(s.groups[c.Group])-1 {
			score = 1 // it is alone in its call
			if furthest(rank, c.Group) <= c.Seq {
				score = 2 // and nobody has come so far in another group of that name
			}
		}
		if score > most {
			best, most = rank, score
		}
	}
	return best
}

// furthest returns the largest count of collectives of the other ranks in groups of the
// name of a group.
func (s *still) furthest() func(rank int, group string) int64 {
	type leading struct {
		rank        int
		first, next int64 // its count, and the largest of the others'
	}
	// The largest and second largest count of each name, so that a rank is compared with the others in one pass.
	names := map[string]*leading{}
	for rank := range s.ranks {
		v := &s.ranks[rank]
		if v.hello == nil || v.beat == nil {
			continue
		}
		for i, g := range v.hello.Groups[:min(len(v.hello.Groups), len(v.beat.Groups))] {
			l := names[g.Name]
			if l == nil {
				l = &leading{rank: -1}
				names[g.Name] = l
			}
			switch n := v.beat.Groups[i].Entered; {
			case rank == l.rank:
				l.first = max(l.first, n)
			case n > l.first:
				*l = leading{rank, n, l.first}
			default:
				l.next = max(l.next, n)
			}
		}
	}
	// The leader is compared with the second, everybody else with the leader.
	return func(rank int, group string) int64 {
		name, _, _ := strings.Cut(group, " ")
		switch l := names[name]; {
		case l == nil:
			return 0
		case l.rank == rank:
			return l.next
		default:
			return l.first
		}
	}
}

// verdict fills in what is known of the rank to blame, and where all are.
func (s *still) verdict(kind failure.Kind, rank int) *failure.Verdict {
	v := &failure.Verdict{Kind: kind, Rank: rank, Code: exitcode.Internal, Time: time.Now()}
	describe(v, s.ranks)
	return v
}

// describe adds what is known of the ranks to a verdict.
func describe(v *failure.Verdict, ranks []view) {
	// Where every rank stands, by its last heartbeat.
	v.Ranks = nil
	for rank := range ranks {
		state := &ranks[rank]
		if state.beat == nil {
			continue
		}
		at := At(state.beat.Phase, state.beat.Step)
		if c := state.beat.Waiting; c != nil {
			at += ", in " + c.String()
		}
		v.Ranks = append(v.Ranks, failure.Standing{Rank: rank, At: at})
	}
	// The rank to blame: its phase, host, stack and last call.
	if v.Rank < 0 || v.Rank >= len(ranks) {
		return
	}
	state := &ranks[v.Rank]
	if state.beat != nil && v.Phase == "" {
		v.Phase, v.Step, v.LastCall = state.beat.Phase.String(), state.beat.Step, state.beat.Waiting.Kept()
	}
	if state.hello != nil {
		v.Host, v.PID = state.hello.Host, state.hello.PID
	}
	if state.report != nil {
		v.Stack = state.report.Stack.text()
		if n := len(state.report.Calls); n > 0 {
			v.LastCall = state.report.Calls[n-1].Kept()
		}
	}
}
