package health

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// block is evenly spaced numbers, first, first+step, ..., last, that are repeated `times`
// times, `apart` from one another.
type block struct{ first, last, step, apart, times int }

// elided stands in a list for blocks that continue as the two before it, up to the one after it.
const elided = ".."

// ranges writes ascending numbers in short: "1,3-5", evenly spaced ones as "0-12/4", and
// blocks at one distance, four at least, as "0-3,8-11,..,56-59". A group of 10,000 ranks
// takes some bytes, so that its name travels with every beat.
func ranges(numbers []int) string {
	var texts []string
	for _, b := range folded(blocksOf(numbers)) {
		switch {
		case b.times > 1:
			texts = append(texts, b.at(0), b.at(1), elided, b.at(b.times-1))
		case b.last == b.first+1:
			texts = append(texts, itoa(b.first), itoa(b.last))
		default:
			texts = append(texts, b.at(0))
		}
	}
	return strings.Join(texts, ",")
}

// at is the block's repetition i.
func (b block) at(i int) string {
	from, to := itoa(b.first+i*b.apart), itoa(b.last+i*b.apart)
	switch {
	case b.first == b.last:
		return from
	case b.step != 1:
		return from + "-" + to + "/" + itoa(b.step)
	}
	return from + "-" + to
}

// blocksOf cuts numbers where their distance changes.
func blocksOf(numbers []int) (blocks []block) {
	for i := 0; i < len(numbers); {
		step, j := 1, i
		if i+2 < len(numbers) && numbers[i+1]-numbers[i] == numbers[i+2]-numbers[i+1] {
			step = numbers[i+1] - numbers[i]
		}
		for j+1 < len(numbers) && numbers[j+1]-numbers[j] == step {
			j++
		}
		blocks = append(blocks, block{numbers[i], numbers[j], step, 0, 1})
		i = j + 1
	}
	return blocks
}

// folded makes one of four or more blocks alike at one distance.
func folded(blocks []block) (out []block) {
	for len(blocks) > 0 {
		b, n := blocks[0], 1
		for n < len(blocks) && blocks[n].last-blocks[n].first == b.last-b.first && blocks[n].step == b.step &&
			blocks[n].first-blocks[n-1].first == blocks[1].first-b.first {
			n++
		}
		if n < 4 {
			n = 1
		} else {
			b.apart, b.times = blocks[1].first-b.first, n
		}
		out, blocks = append(out, b), blocks[n:]
	}
	return out
}

// parseRanges reads what ranges writes. Text may come from outside: an error is anything
// else, also numbers that do not ascend.
func parseRanges(text string) (blocks []block, err error) {
	bad := func() ([]block, error) {
		return nil, fmt.Errorf("%q is not an ascending list of numbers", cut(text, 64))
	}
	parts := strings.Split(text, ",")
	for i := 0; i < len(parts); i++ {
		n := len(blocks)
		if parts[i] != elided {
			b, ok := parseBlock(parts[i])
			if !ok || n > 0 && b.first <= blocks[n-1].end() {
				return bad()
			}
			blocks = append(blocks, b)
			continue
		}
		// Two blocks before the dots and one after them give distance and number.
		if i++; n < 2 || i >= len(parts) {
			return bad()
		}
		a, b := &blocks[n-2], blocks[n-1]
		end, ok := parseBlock(parts[i])
		apart := b.first - a.first
		if !ok || end.first <= b.first || (end.first-a.first)%apart != 0 || end.last-end.first != a.last-a.first || a.times > 1 {
			return bad()
		}
		a.apart, a.times = apart, (end.first-a.first)/apart+1
		blocks = blocks[:n-1]
	}
	return blocks, nil
}

// parseBlock reads "5", "5-8" or "5-11/3".
func parseBlock(text string) (b block, ok bool) {
	span, step, stepped := strings.Cut(text, "/")
	first, last, several := strings.Cut(span, "-")
	if !several {
		last = first
	}
	if !stepped {
		step = "1"
	}
	for _, n := range []struct {
		text string
		to   *int
	}{{first, &b.first}, {last, &b.last}, {step, &b.step}} {
		value, err := strconv.ParseUint(n.text, 10, 30)
		if err != nil {
			return block{}, false
		}
		*n.to = int(value)
	}
	b.times = 1
	return b, b.step >= 1 && b.first <= b.last && (b.last-b.first)%b.step == 0
}

// end is the largest number of a block.
func (b block) end() int { return b.last + (b.times-1)*b.apart }

// has reports whether a number is in a block.
func (b block) has(n int) bool {
	n -= b.first
	if n < 0 {
		return false
	}
	if b.times > 1 {
		if n/b.apart >= b.times {
			return false
		}
		n %= b.apart
	}
	return n <= b.last-b.first && n%b.step == 0
}

// members lists the numbers of a text of ranges, all of them below world.
func members(text string, world int) (numbers []int, err error) {
	blocks, err := parseRanges(text)
	if err != nil {
		return nil, err
	}
	if last := blocks[len(blocks)-1].end(); last >= min(world, math.MaxInt32) {
		return nil, fmt.Errorf("rank %d does not exist in a run of %d ranks", last, world)
	}
	for _, b := range blocks {
		for i := range b.times {
			for n := b.first; n <= b.last; n += b.step {
				numbers = append(numbers, n+i*b.apart)
			}
		}
	}
	return numbers, nil
}
