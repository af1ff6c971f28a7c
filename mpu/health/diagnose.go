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
	groups map[string]int // place in hello.Groups by name and members
	beat   *Beat
	heard  time.Time
	moved  time.Time // when it last did something
	over   bool      // it has said that it ends
	report *Report
}

// grace is how old a beat may be that a verdict rests on.
const grace = 4 * time.Second

// diagnose finds out why a run stands still: nil while a rank does something, has
// done something within limit, or is not heard of, or without a limit.
func diagnose(ranks []view, now time.Time, limit time.Duration) *failure.Verdict {
	alive := 0
	for i := range ranks {
		v := &ranks[i]
		switch {
		case v.over:
			continue
		case v.hello == nil || v.beat == nil || now.Sub(v.heard) > grace:
			return nil
		case limit <= 0 || now.Sub(v.moved) < limit:
			return nil
		}
		alive++
	}
	if alive == 0 {
		return nil
	}
	s := &still{ranks: ranks, lacks: make([][]int, len(ranks))}
	for rank := range ranks {
		s.lacks[rank] = s.lacking(rank)
	}
	if culprit := s.culprit(); culprit >= 0 {
		return s.absent(culprit)
	}
	return s.cycle()
}

// still is a run that stands still.
type still struct {
	ranks []view
	lacks [][]int // by rank: whom it waits for
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
	v := &s.ranks[rank]
	if v.beat == nil {
		return c, false
	}
	i, known := v.groups[group]
	if !known || i >= len(v.beat.Groups) {
		return c, false
	}
	return v.beat.Groups[i], true
}

// members are the ranks of a group that a rank is in.
func (s *still) members(rank int, group string) []int {
	i, known := s.ranks[rank].groups[group]
	if !known {
		return nil
	}
	return s.ranks[rank].hello.Groups[i].Members
}

// lacking are the ranks that have not come where a rank waits.
func (s *still) lacking(rank int) (list []int) {
	c := s.waits(rank)
	if c == nil {
		return nil
	}
	add := func(peer int) {
		if peer != rank && !slices.Contains(list, peer) {
			list = append(list, peer)
		}
	}
	if c.Op == comm.Exchange {
		for _, sends := range []bool{false, true} { // what is sent may be under way without its receiver
			for _, m := range c.Messages {
				if m.Send == sends && s.known(m.Peer) && !s.met(m, rank, c.Group) {
					add(m.Peer)
				}
			}
		}
		return list
	}
	for _, peer := range s.members(rank, c.Group) {
		if !s.known(peer) {
			continue
		}
		if count, known := s.count(peer, c.Group); !known || count.Entered <= c.Seq {
			add(peer)
		}
	}
	return list
}

func (s *still) known(rank int) bool { return rank >= 0 && rank < len(s.ranks) }

// met tells whether the other end of a message of rank is there.
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
	for rank := range s.ranks {
		if s.waits(rank) != nil {
			continue
		}
		n := s.waiting(rank)
		if s.ranks[rank].over && n == 0 {
			continue // it is done, and nobody misses it
		}
		if n > most || (n == most && s.ranks[rank].moved.Before(s.ranks[best].moved)) {
			best, most = rank, n
		}
	}
	return best
}

// waiting counts the ranks that wait for a rank, maybe through others.
func (s *still) waiting(rank int) int {
	seen, queue := map[int]bool{rank: true}, []int{rank}
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		for other, lacks := range s.lacks {
			if !seen[other] && slices.Contains(lacks, next) {
				seen[other] = true
				queue = append(queue, other)
			}
		}
	}
	return len(seen) - 1
}

// absent is the verdict that a rank does not come where others wait for it.
func (s *still) absent(rank int) *failure.Verdict {
	v := s.verdict(failure.Stall, rank)
	state := &s.ranks[rank]
	where := "it has ended"
	if !state.over {
		where = fmt.Sprintf("it is in %s and has done nothing for %d s", At(state.beat.Phase, state.beat.Step), int(time.Since(state.moved).Seconds()))
		if state.beat.Held {
			where += ": its GPU does not complete its work"
		}
	}
	v.Text = fmt.Sprintf("rank %d stands still: %s", rank, where)
	for other := range s.ranks {
		c := s.waits(other)
		if c == nil || !slices.Contains(s.lacks[other], rank) {
			continue
		}
		missed := "never entered"
		if c.Op == comm.Exchange {
			missed = "never came to its side of"
		}
		v.Text = fmt.Sprintf("rank %d %s %s, where rank %d waits%s; %s", rank, missed, s.named(c), other, calledAt(c), where)
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
	name, members, _ := strings.Cut(c.Group, " ")
	var firsts []int
	for rank := range s.ranks {
		if s.ranks[rank].hello == nil {
			continue
		}
		for _, g := range s.ranks[rank].hello.Groups {
			if g.Name == name && len(g.Members) > 0 && !slices.Contains(firsts, g.Members[0]) {
				firsts = append(firsts, g.Members[0])
			}
		}
	}
	slices.Sort(firsts)
	digits := members
	if at := strings.IndexAny(members, ",-"); at >= 0 {
		digits = members[:at]
	}
	first, err := strconv.Atoi(digits)
	if err != nil {
		return c.String()
	}
	return fmt.Sprintf("%s #%d of %s group %d (ranks %s)", c.What(), c.Seq, name, max(0, slices.Index(firsts, first)), members)
}

// cycle is the verdict where all wait: they have called in different orders.
func (s *still) cycle() *failure.Verdict {
	rank := s.odd()
	if rank < 0 {
		return nil // everybody is done
	}
	v := s.verdict(failure.Mismatch, rank)
	c := s.waits(rank)
	if len(s.lacks[rank]) == 0 {
		v.Kind = failure.Stall
		v.Text = fmt.Sprintf("all ranks have entered %s, but on rank %d it does not end: bytes are lost between the ranks", s.named(c), rank)
		return v
	}
	other := s.lacks[rank][0]
	v.Text = fmt.Sprintf("the ranks wait for each other: rank %d is in %s%s, which rank %d never entered", rank, s.named(c), calledAt(c), other)
	if theirs := s.waits(other); theirs != nil {
		v.Text += fmt.Sprintf("; rank %d is in %s%s", other, s.named(theirs), calledAt(theirs))
	}
	v.Text += fmt.Sprintf("; it is rank %d whose calls differ from the other ranks'", rank)
	return v
}

// odd is the rank whose call fits least to what ranks do in groups of the same name;
// -1: nobody waits.
func (s *still) odd() int {
	best, most := -1, -1
	for rank := range s.ranks {
		c := s.waits(rank)
		if c == nil {
			continue
		}
		score := 0
		if c.Op != comm.Exchange && len(s.lacks[rank]) == len(s.members(rank, c.Group))-1 {
			score = 1 // it is alone in its call
			if s.furthest(rank, c.Group) <= c.Seq {
				score = 2 // and nobody has come so far in another group of that name
			}
		}
		if score > most {
			best, most = rank, score
		}
	}
	return best
}

// furthest is the largest count of collectives of other ranks in groups of the name.
func (s *still) furthest(rank int, group string) (entered int64) {
	kind, _, _ := strings.Cut(group, " ")
	for r := range s.ranks {
		v := &s.ranks[r]
		if r == rank || v.beat == nil {
			continue
		}
		for name, i := range v.groups {
			if strings.HasPrefix(name, kind+" ") && i < len(v.beat.Groups) {
				entered = max(entered, v.beat.Groups[i].Entered)
			}
		}
	}
	return entered
}

// verdict fills in what is known of the rank to blame, and where all are.
func (s *still) verdict(kind failure.Kind, rank int) *failure.Verdict {
	v := &failure.Verdict{Kind: kind, Rank: rank, Code: exitcode.Internal, Time: time.Now()}
	describe(v, s.ranks)
	return v
}

// describe adds what is known of the ranks to a verdict.
func describe(v *failure.Verdict, ranks []view) {
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
		v.Stack = state.report.Stack
		if n := len(state.report.Calls); n > 0 {
			v.LastCall = state.report.Calls[n-1].Kept()
		}
	}
}
