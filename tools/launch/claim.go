package launch

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// claim is what a launcher says of the last start that it was in.
type claim struct {
	slot     int  // its node rank; -1: it has run no ranks
	start    int  // the number of that start, from 1; 0: none
	resumes  bool // the run has saved since it began, and continues from there
	checking bool // it checks itself as a spare host: it cannot run ranks yet
}

// String and readClaim write and read it for a meeting.
func (c claim) String() string {
	return fmt.Sprintf("%d %d %t %t", c.slot, c.start, c.resumes, c.checking)
}

func readClaim(text string) claim {
	none := claim{slot: -1}
	words := strings.Fields(text)
	if len(words) != 4 {
		return none
	}
	slot, err1 := strconv.Atoi(words[0])
	start, err2 := strconv.Atoi(words[1])
	resumes, err3 := strconv.ParseBool(words[2])
	checking, err4 := strconv.ParseBool(words[3])
	if errors.Join(err1, err2, err3, err4) != nil {
		return none
	}
	return claim{slot, start, resumes, checking}
}

// arrival is a launcher that has come.
type arrival struct {
	number int
	claim
}

// assign gives the numbers of the launchers that run ranks, by node rank, for so many hosts. Who
// ran a node rank in the latest start keeps it, so that what its memory holds is of use; free ones
// go to the others in order of their numbers. Where hosts are fewer than before the first ones
// move up.
func assign(here []arrival, hosts int) []int {
	latest := 0
	for _, a := range here {
		latest = max(latest, a.start)
	}
	slots := slices.Repeat([]int{-1}, hosts)
	var free []arrival
	for _, a := range here {
		if a.slot >= 0 && a.slot < hosts && a.start == latest && slots[a.slot] < 0 {
			slots[a.slot] = a.number
		} else {
			free = append(free, a)
		}
	}
	slices.SortFunc(free, func(a, b arrival) int { return cmp.Compare(a.number, b.number) })
	for node := range slots {
		if slots[node] < 0 {
			slots[node], free = free[0].number, free[1:]
		}
	}
	return slots
}
