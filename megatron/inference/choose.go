package inference

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/mpu"
)

// Sampling says how the next token is chosen from its logits. The zero value is greedy.
type Sampling struct {
	Temperature float64 // divides the logits; 0: greedy
	TopK        int     // the likeliest so many; 0: all
	TopP        float64 // of the tokens TopK left, the fewest that hold this much; 0 or 1: all
	MinP        float64 // of those, what has this fraction of the likeliest's probability; 0: all
	Seed        uint64
	Number      uint32 // of this text among those of a request: each draws its own

	Repetition    float64 // divides (where negative, multiplies) logits of tokens that occurred, also in the prompt; 0 or 1: off
	Presence      float64 // taken from logits of tokens that were generated
	Frequency     float64 // taken from them as often as they were
	Bias          Bias
	NoRepeatNgram int // 0: repeats are fine
}

// edit is how a token's logit x is changed before the choice: to (x > 0 ? x/ratio : x·ratio) + add.
type edit struct {
	id         int32
	ratio, add float64
}

// Bias is what is added to the logits of some tokens, by id. All texts of a request share one.
type Bias []edit

// NewBias makes a Bias of numbers by token id; minus infinity bans a token.
func NewBias(add map[int32]float64) Bias {
	b := make(Bias, 0, len(add))
	for _, id := range slices.Sorted(maps.Keys(add)) {
		b = append(b, edit{id: id, ratio: 1, add: add[id]})
	}
	return b
}

// edits is all that depends on the text so far: ids, of which the first `prompt` were given. The
// list may be s.Bias itself; nobody writes to it.
func (s *Sampling) edits(ids []int32, prompt int) []edit {
	list, at := []edit(slices.Clip(s.Bias)), map[int32]int(nil)
	// of: the edit of a token, made when first asked for; s.Bias is cloned before the first change.
	of := func(id int32) *edit {
		if at == nil {
			list, at = slices.Clone(list), map[int32]int{}
		}
		i, found := at[id]
		if !found {
			if i, found = slices.BinarySearchFunc(s.Bias, id, func(e edit, id int32) int { return cmp.Compare(e.id, id) }); !found {
				i, list = len(list), append(list, edit{id: id, ratio: 1})
			}
			at[id] = i
		}
		return &list[i]
	}
	// Repetition penalty: prompt and answer; presence and frequency: the answer only (OpenAI's definition).
	if s.Repetition != 0 && s.Repetition != 1 {
		for id := range counts(ids) {
			of(id).ratio = s.Repetition
		}
	}
	if s.Presence != 0 || s.Frequency != 0 {
		for id, n := range counts(ids[prompt:]) {
			of(id).add -= s.Presence + s.Frequency*float64(n)
		}
	}
	// Tokens that would repeat an n-gram are excluded.
	for _, id := range repeats(ids, s.NoRepeatNgram) {
		of(id).add = math.Inf(-1)
	}
	return list
}

// banned is edits and bans of further tokens, ascending, of a vocabulary; a token is edited once.
// Where the edits ban all that is left they ban nothing: a text within a schema continues.
func banned(edits []edit, ids []int32, vocabulary int) []edit {
	all, bans := make([]edit, 0, len(edits)+len(ids)), 0
	for _, e := range edits {
		if _, is := slices.BinarySearch(ids, e.id); !is {
			if all = append(all, e); math.IsInf(e.add, -1) {
				bans++
			}
		}
	}
	if bans >= vocabulary-len(ids) {
		all = slices.DeleteFunc(all, func(e edit) bool { return math.IsInf(e.add, -1) })
	}
	for _, id := range ids {
		all = append(all, edit{id: id, ratio: 1, add: math.Inf(-1)})
	}
	return all
}

func counts(ids []int32) map[int32]int {
	n := map[int32]int{}
	for _, id := range ids {
		n[id]++
	}
	return n
}

// repeats are the tokens that would repeat an n-gram of ids: those that follow where the last
// n-1 ids occurred before. It takes time in proportion to len(ids), whatever n is.
func repeats(ids []int32, n int) (banned []int32) {
	if n <= 0 || len(ids) < n {
		return nil
	}
	if n == 1 {
		return slices.Clone(ids)
	}
	last, matched := ids[len(ids)-n+1:], 0
	shorter := borders(last)
	for i, id := range ids[:len(ids)-1] {
		matched = extend(last, shorter, matched, id)
		if matched == len(last) {
			banned = append(banned, ids[i+1])
		}
	}
	return banned
}

// borders gives, for every beginning of pattern, the length of the longest shorter beginning
// that also ends it (Knuth, Morris and Pratt).
func borders(pattern []int32) []int {
	list := make([]int, len(pattern))
	for i := 1; i < len(pattern); i++ {
		list[i] = extend(pattern, list, list[i-1], pattern[i])
	}
	return list
}

// extend is how much of pattern ends at id, when `matched` ids of it ended just before.
func extend(pattern []int32, shorter []int, matched int, id int32) int {
	for matched > 0 && (matched == len(pattern) || pattern[matched] != id) {
		matched = shorter[matched-1]
	}
	if pattern[matched] == id {
		matched++
	}
	return matched
}

// wish is what is asked of a row of logits.
type wish struct {
	*Sampling
	edits []edit
	nth   int   // new token of its text
	about int32 // the token to tell of; −1: one is chosen
	tell  int   // the likeliest so many, with log-probabilities; negative: no log-probabilities at all
}

// draw is the random word for the choice: of Seed, Number and the token's position alone.
func (w *wish) draw() uint32 {
	return device.Philox(device.StreamKey(w.Seed, "generate"), [4]uint32{uint32(w.nth), w.Number})[0]
}

// choose fulfils a wish for each row of logits, on the device. Where a row's logits are not
// finite, bad says so.
func (g *Generator) choose(logits device.Tensor, list []wish) (tokens []Token, bad []error, err error) {
	d, rows, best := g.Device, int64(len(list)), -1
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	// ids, chosen: [rows]; rules: i32 [rows, 4], the token asked about, top-k, random draw, start of the row's
	// edits; numbers: f64 [rows, 3].
	a := device.SampleArgs{Logits: logits, Columns: int64(g.Vocab), IDs: s.Alloc(device.I32, rows), Chosen: s.Alloc(device.F32, rows),
		Rules: s.Alloc(device.I32, rows, 4), Numbers: s.Alloc(device.F64, rows, 3)}
	var rules, edited []int32
	var numbers []float64
	var values []float32
	for i := range list {
		w := &list[i]
		best = max(best, w.tell)
		rules = append(rules, w.about, int32(min(w.TopK, g.Vocab)), int32(w.draw()), int32(len(edited)))
		numbers = append(numbers, w.Temperature, w.TopP, w.MinP)
		for _, e := range w.edits {
			edited, values = append(edited, e.id), append(values, float32(min(max(e.ratio, 0x1p-100), 0x1p100)), float32(e.add))
		}
	}
	device.WriteSlice(d, a.Rules, rules)
	device.WriteSlice(d, a.Numbers, numbers)
	// Edits of all rows one after the other; a row's end where the next one's start.
	if n := int64(len(edited)); n > 0 {
		a.EditIDs, a.EditValues = s.Alloc(device.I32, n), s.Alloc(device.F32, n, 2)
		device.WriteSlice(d, a.EditIDs, edited)
		device.WriteSlice(d, a.EditValues, values)
	}
	// Log probabilities, and the most probable tokens, only if a row wants them.
	if best >= 0 {
		a.Max, a.Sum = s.Alloc(device.F32, rows), s.Alloc(device.I64, rows)
	}
	if best > 0 {
		a.Best, a.BestLogits = s.Alloc(device.I32, rows, int64(best)), s.Alloc(device.F32, rows, int64(best))
	}
	d.Sample(a)
	tokens, bad, err = g.chosen(&a, list)
	if err == nil && g.LossColumns > 0 {
		err = g.asLosses(&a, tokens)
	}
	return tokens, bad, err
}

// asLosses sets the tokens' log-probabilities to what a training step's losses say.
func (g *Generator) asLosses(a *device.SampleArgs, tokens []Token) error {
	d, rows := g.Device, int64(len(tokens))
	s := d.Arena.Scope(device.Activations)
	defer s.Release()
	wide := s.Alloc(device.F32, rows, int64(g.LossColumns))
	d.Fill(wide, 0)
	d.Copy(wide.Slice(1, 0, a.Columns), a.Logits)
	loss := s.Alloc(device.F32, rows)
	mpu.LossesOf(d, loss, wide, a.IDs, max(1, g.HeadRanks), a.Columns)
	for i, x := range device.ReadSlice[float32](d, loss) {
		tokens[i].LogProb = -float64(x)
	}
	return d.Sync()
}

// chosen reads what the op has found.
func (g *Generator) chosen(a *device.SampleArgs, list []wish) (tokens []Token, bad []error, err error) {
	d := g.Device
	// Start all reads, then wait once.
	ids, logits := device.ReadSlice[int32](d, a.IDs), device.ReadSlice[float32](d, a.Chosen)
	var top, bestLogits []float32
	var sum []int64
	var best []int32
	if a.Max.Given() {
		top, sum = device.ReadSlice[float32](d, a.Max), device.ReadSlice[int64](d, a.Sum)
	}
	if a.Best.Given() {
		best, bestLogits = device.ReadSlice[int32](d, a.Best), device.ReadSlice[float32](d, a.BestLogits)
	}
	if err := d.Sync(); err != nil {
		return nil, nil, err
	}
	tokens, bad = make([]Token, len(list)), make([]error, len(list))
	now := time.Now()
	for i := range list {
		// The op could not choose: find out why from the row's logits. Other rows are not affected.
		if ids[i] < 0 {
			row := device.ReadSlice[float32](d, a.Logits.Slice(0, int64(i), 1))
			if err := d.Sync(); err != nil {
				return nil, nil, err
			}
			bad[i] = checkLogits(row)
			continue
		}
		t := &tokens[i]
		*t = Token{Choice: Choice{ID: ids[i]}, At: now}
		if list[i].tell < 0 {
			continue
		}
		// log Σ exp = largest logit + log of the sum, which the op gives in units of 1/SampleFull.
		norm := float64(top[i]) + math.Log(float64(sum[i])/device.SampleFull)
		t.LogProb = float64(logits[i]) - norm
		for k := range list[i].tell {
			if at := i*int(a.Best.Shape[1]) + k; best[at] >= 0 {
				t.Top = append(t.Top, Choice{best[at], float64(bestLogits[at]) - norm})
			}
		}
	}
	return tokens, bad, nil
}
