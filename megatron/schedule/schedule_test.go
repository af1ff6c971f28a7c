package schedule

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// everyConfig hands over each legal configuration up to 8 stages, 4 chunks and 32
// micro-batches: in groups of as many micro-batches as there are stages, with and
// without overlap, and in groups of another size, which changes from one to the next.
func everyConfig(each func(Config)) {
	for stages := 1; stages <= 8; stages++ {
		for chunks := 1; chunks <= 4; chunks++ {
			for micros := 1; micros <= 32; micros++ {
				c := Config{Stages: stages, Chunks: chunks, Micros: micros, Group: stages}
				plain, grouped := c, c
				plain.NoOverlap = true
				grouped.Group = []int{stages + 1, 2 * stages, micros}[(stages+chunks+micros)%3]
				for i, c := range []Config{c, plain, grouped} {
					if c.Check() == nil && (i == 0 || chunks > 1) {
						each(c)
					}
				}
			}
		}
	}
}

func variants(c Config) []Config {
	gpipe, evaluation := c, c
	gpipe.Name, evaluation.ForwardOnly = GPipeName, true
	return []Config{c, gpipe, evaluation}
}

// Claim: for all (pipeline, chunks, micro-batches) up to (8, 4, 32) the lists are
// sound and the most micro-batches alive equal the formulas: 1F1B p-s, interleaved
// 2(p-s-1)+(v-1)g+1, GPipe all (arXiv 2104.04473, section 2.2).
func TestLiveMicroBatches(t *testing.T) {
	n := 0
	everyConfig(func(base Config) {
		for _, c := range variants(base) {
			n++
			_, proof, err := c.All()
			if err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			for stage, live := range proof.Live {
				if live != c.Live(stage) {
					t.Fatalf("%+v: stage %d has %d alive, the formula says %d", c, stage, live, c.Live(stage))
				}
			}
		}
	})
	if n < 1500 {
		t.Errorf("only %d configurations", n)
	}
}

// Claim: on a clock, stages of equal work take (v m + p - 1)(f + b), so that the
// bubble is (p-1)/(v m) of the work (arXiv 2104.04473, section 2.2), whatever the
// group and with links that wait for both ends.
func TestSimulatedTicks(t *testing.T) {
	n := 0
	everyConfig(func(base Config) {
		for _, c := range []Config{base, variants(base)[1]} {
			f, b := 1.0, 1+float64(n%3)
			n++
			line, err := Simulate(c, Even(c, f*float64(c.Chunks), b*float64(c.Chunks), 0))
			if err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
			if want := float64(c.Chunks*c.Micros+c.Stages-1) * (f + b); math.Abs(line.End-want) > 1e-9 {
				t.Fatalf("%+v: %g seconds, the formula says %g", c, line.End, want)
			}
			if want := c.BubbleFraction(); math.Abs(line.Bubble()-want) > 1e-9 {
				t.Fatalf("%+v: bubble %g, the formula says %g", c, line.Bubble(), want)
			}
		}
	})
	if n < 1000 {
		t.Errorf("only %d configurations", n)
	}
}

// Claim: an evaluation takes v m + p - 1 forwards of a chunk where micro-batches
// come in complete groups, and whatever their number it runs.
func TestEvaluationTicks(t *testing.T) {
	for stages := 1; stages <= 8; stages++ {
		for chunks := 1; chunks <= 4; chunks++ {
			for micros := 1; micros <= 19; micros++ {
				c := Config{Stages: stages, Chunks: chunks, Micros: micros, ForwardOnly: true}
				if c.Check() != nil {
					continue
				}
				line, err := Simulate(c, Even(c, float64(chunks), 0, 0))
				if err != nil {
					t.Fatalf("%+v: %v", c, err)
				}
				want := float64(chunks*micros + stages - 1)
				if rest := micros % stages; rest > 0 {
					want += float64((chunks - 1) * (stages - rest)) // a smaller group waits for its values to come around
				}
				if line.End != want {
					t.Fatalf("%+v: %g ticks, want %g", c, line.End, want)
				}
			}
		}
	}
}

// Claim: on goroutines over unbuffered channels every list ends, and every value
// comes where it belongs (style, section 9).
func TestUnbufferedChannels(t *testing.T) {
	n := 0
	everyConfig(func(base Config) {
		n++
		for i, c := range variants(base) {
			if i > 0 && i != n%5 {
				continue // GPipe and evaluations in turn: their lists have one shape
			}
			lists, _, err := c.All()
			if err != nil {
				t.Fatal(err)
			}
			if n%2 == 0 {
				lists = strict(lists) // no exchange put off
			}
			if err := runOnChannels(t, lists, c.Chunks); err != nil {
				t.Fatalf("%+v: %v", c, err)
			}
		}
	})
	if n < 500 {
		t.Errorf("only %d configurations", n)
	}
}

// Claim: the order is Megatron's (recorded from it running: golden/model
// pipeline-orders, three of its rows; all of them: verify case).
func TestOrdersOfMegatron(t *testing.T) {
	for _, c := range []struct {
		config Config
		stage  int
		want   string
	}{
		{Config{Stages: 4, Micros: 8}, 1, "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 F6 B4 F7 B5 B6 B7"},
		{Config{Stages: 2, Chunks: 2, Micros: 6, Group: 4}, 1, "F0.0 F0.1 F0.2 F0.3 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F1.3 B1.3 F0.4 B0.0 F0.5 B0.1 F1.4 B0.2 F1.5 B0.3 B1.4 B1.5 B0.4 B0.5"},
		{Config{Stages: 2, Chunks: 2, Micros: 2}, 0, "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1"},
	} {
		if got := Order(c.config.Actions(c.stage), max(1, c.config.Chunks)); got != c.want {
			t.Errorf("%+v, stage %d:\n%s, want\n%s", c.config, c.stage, got, c.want)
		}
	}
}

// Claim: exchanges are paired as Megatron pairs them: in 1F1B's turns a send goes
// with a receive of the other direction (send_forward_recv_backward and
// send_backward_recv_forward); in interleaved lists an overlapped exchange follows
// each run, or without overlap one of up to four transfers follows each pair.
func TestExchangesOfMegatron(t *testing.T) {
	if got, want := fmt.Sprint(OneFOneB(1, 3, 2)), "[[receive activation of chunk 0, micro-batch 0 from stage 0] F0.0 "+
		"[send activation of chunk 0, micro-batch 0 to stage 2] [receive activation of chunk 0, micro-batch 1 from stage 0] F0.1 "+
		"[send activation of chunk 0, micro-batch 1 to stage 2, receive gradient of chunk 0, micro-batch 0 from stage 2] B0.0 "+
		"[send gradient of chunk 0, micro-batch 0 to stage 0] [receive gradient of chunk 0, micro-batch 1 from stage 2] B0.1 "+
		"[send gradient of chunk 0, micro-batch 1 to stage 0]]"; got != want {
		t.Errorf("%s, want\n%s", got, want)
	}
	for _, overlap := range []bool{true, false} {
		most, put := 0, 0
		for _, a := range Interleaved(1, 4, 2, 8, 4, overlap) {
			most = max(most, len(a.Transfers))
			if a.Overlap {
				put++
			}
		}
		if overlap && (most != 2 || put == 0) || !overlap && (most != 4 || put > 0) {
			t.Errorf("overlap %t: up to %d transfers an exchange, %d overlapped", overlap, most, put)
		}
	}
}

// Claim: one stage exchanges nothing.
func TestOneStage(t *testing.T) {
	if got := fmt.Sprint(OneFOneB(0, 1, 2)); got != "[F0.0 B0.0 F0.1 B0.1]" {
		t.Error(got)
	}
}

// Claim: a book gives the lists of a configuration, proved once, or its refusal.
func TestBook(t *testing.T) {
	var b Book
	c := Config{Stages: 3, Chunks: 2, Micros: 6}
	first, err1 := b.Actions(c, 1)
	c.Name, c.Group = OneFOneBName, 3 // the same, with its defaults written out
	again, err2 := b.Actions(c, 1)
	if err1 != nil || err2 != nil || &first[0] != &again[0] || fmt.Sprint(first) != fmt.Sprint(c.Actions(1)) {
		t.Errorf("%v, %v, %v, %v", first, err1, again, err2)
	}
	if _, err := b.Actions(Config{Stages: 3, Chunks: 2, Micros: 7}, 1); exitcode.CodeOf(err) != exitcode.Usage {
		t.Error(err)
	}
}

// Claim: what Megatron refuses is refused, with values that would do.
func TestRefusedConfigs(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Stages: 2, Chunks: 2, Micros: 3, Group: 2}, "use 2 or 4 micro-batches, or --microbatch-group-size-per-virtual-pipeline-stage 3"},
		{Config{Stages: 4, Chunks: 2, Micros: 3}, "at least 4 micro-batches per step, not 3"},
		{Config{Stages: 4, Chunks: 2, Micros: 8, Group: 3}, "must be from 4 (stages) to 8 (micro-batches)"},
		{Config{Stages: 1, Chunks: 2, Micros: 8}, "at least 2"},
		{Config{Stages: 2}, "micro-batches (0)"},
		{Config{Stages: 2, Micros: 1, Name: "zb"}, `--pipeline-schedule must be 1f1b or gpipe, not "zb"`},
	} {
		_, _, err := c.config.All()
		if exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
}

// mutant is a way to spoil lists at an index; false: nothing to spoil.
type mutant struct {
	name  string
	spoil func(lists [][]Action, stage, index int) bool
}

// transfersOf hands over the transfers of an exchange, copied.
func transfersOf(lists [][]Action, stage, index int) []Transfer {
	a := &lists[stage][index]
	a.Transfers = slices.Clone(a.Transfers)
	return a.Transfers
}

var mutants = []mutant{
	{"a transfer dropped", func(lists [][]Action, stage, index int) bool {
		if t := transfersOf(lists, stage, index); len(t) > 1 {
			lists[stage][index].Transfers = t[1:]
			return true
		}
		lists[stage] = slices.Delete(lists[stage], index, index+1)
		return true
	}},
	{"an action doubled", func(lists [][]Action, stage, index int) bool {
		lists[stage] = slices.Insert(lists[stage], index, lists[stage][index])
		return true
	}},
	{"a transfer to another stage", func(lists [][]Action, stage, index int) bool {
		t := transfersOf(lists, stage, index)
		if len(t) == 0 || len(lists) < 3 {
			return false
		}
		t[0].Peer = (t[0].Peer + 1) % len(lists)
		return true
	}},
	{"a transfer turned around", func(lists [][]Action, stage, index int) bool {
		t := transfersOf(lists, stage, index)
		if len(t) == 0 {
			return false
		}
		t[0].Send = !t[0].Send
		return true
	}},
	{"another micro-batch", func(lists [][]Action, stage, index int) bool {
		t := transfersOf(lists, stage, index)
		if len(t) == 0 {
			lists[stage][index].Micro++
		} else {
			t[0].Micro++
		}
		return true
	}},
	{"two sends swapped", func(lists [][]Action, stage, index int) bool {
		find := func(from int) (int, int) {
			for i := from; i < len(lists[stage]); i++ {
				for k, t := range lists[stage][i].Transfers {
					if t.Send {
						return i, k
					}
				}
			}
			return -1, 0
		}
		i, k := find(index)
		if i < 0 {
			return false
		}
		j, l := find(i + 1)
		if j < 0 {
			return false
		}
		a, b := transfersOf(lists, stage, i), transfersOf(lists, stage, j)
		a[k], b[l] = b[l], a[k]
		return true
	}},
}

// Claim: a list with a transfer dropped, doubled, sent to another stage, turned around
// or out of order does not pass.
func TestMutantsAreCaught(t *testing.T) {
	caught := map[string]int{}
	for _, c := range []Config{{Stages: 2, Micros: 3}, {Stages: 4, Micros: 6}, {Stages: 2, Chunks: 2, Micros: 4}, {Stages: 3, Chunks: 2, Micros: 6, NoOverlap: true},
		{Stages: 3, Chunks: 3, Micros: 3}, {Name: GPipeName, Stages: 3, Micros: 3}, {Stages: 3, Chunks: 2, Micros: 5, ForwardOnly: true}} {
		lists, _, err := c.All()
		if err != nil {
			t.Fatal(err)
		}
		for stage := range lists {
			for index := range lists[stage] {
				for _, m := range mutants {
					spoiled := slices.Clone(lists)
					spoiled[stage] = slices.Clone(lists[stage])
					if !m.spoil(spoiled, stage, index) {
						continue
					}
					caught[m.name]++
					if _, err := CheckLists(spoiled, max(1, c.Chunks), c.Micros, c.ForwardOnly); err == nil {
						t.Errorf("%+v, stage %d, %v: %s passes", c, stage, lists[stage][index], m.name)
					}
				}
			}
		}
	}
	for _, m := range mutants {
		if caught[m.name] < 50 {
			t.Errorf("%s: %d places", m.name, caught[m.name])
		}
	}
}

// apart makes an exchange of each transfer, in any order: what was one would now
// wait for another.
func apart(acts []Action, random *rand.Rand) (out []Action) {
	for _, a := range acts {
		if a.Kind != Exchange {
			out = append(out, a)
			continue
		}
		for _, i := range random.Perm(len(a.Transfers)) {
			out = append(out, Action{Kind: Exchange, Transfers: a.Transfers[i : i+1]})
		}
	}
	return out
}

// Claim: lists that wait in a circle are distinguished from those that do not,
// exactly: what passes after random changes runs on unbuffered channels, and what
// is said to wait in a circle does.
func TestCircles(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	passed, circles := 0, 0
	for range 1500 {
		c := []Config{{Stages: 2, Micros: 3}, {Stages: 3, Micros: 4}, {Stages: 2, Chunks: 2, Micros: 4}, {Stages: 3, Chunks: 2, Micros: 3}, {Stages: 3, Chunks: 2, Micros: 3, NoOverlap: true}}[random.IntN(5)]
		lists, _, err := c.All()
		if err != nil {
			t.Fatal(err)
		}
		lists = strict(lists)
		for stage := range lists {
			if random.IntN(4) == 0 {
				lists[stage] = apart(lists[stage], random)
			}
		}
		acts := lists[random.IntN(len(lists))]
		if i := random.IntN(2 * len(acts)); i < len(acts)-1 {
			acts[i], acts[i+1] = acts[i+1], acts[i]
		}
		_, err = CheckLists(lists, max(1, c.Chunks), c.Micros, false)
		ran := runOnChannels(t, lists, max(1, c.Chunks))
		switch {
		case err == nil && ran != nil:
			t.Fatalf("%+v passes, and on channels: %v\n%v", c, ran, lists)
		case err == nil:
			passed++
		case strings.Contains(err.Error(), "wait for each other"):
			circles++
			if !errors.Is(ran, errStuck) {
				t.Fatalf("%+v: %v, and on channels: %v\n%v", c, err, ran, lists)
			}
		}
	}
	if passed < 50 || circles < 50 {
		t.Errorf("%d lists passed, %d waited in a circle", passed, circles)
	}
}

// broken is a stage whose work or link fails.
type broken struct{ at Kind }

var errBroken = errors.New("broken")

func (b broken) fail(k Kind) error {
	if b.at == k {
		return errBroken
	}
	return nil
}

func (b broken) Forward(int, int, int) (int, error)  { return 1, b.fail(Forward) }
func (b broken) Backward(int, int, int) (int, error) { return 1, b.fail(Backward) }
func (b broken) Exchange(transfers []Transfer, _ []int) (func() ([]int, error), error) {
	return func() ([]int, error) { return make([]int, len(transfers)), b.fail(Exchange + 1) }, b.fail(Exchange)
}

// Claim: the first error ends a run and says where it happened.
func TestRunStopsAtAnError(t *testing.T) {
	for kind, want := range map[Kind]string{
		Forward:      "forward of micro-batch 0: broken",
		Backward:     "backward of chunk 1 of micro-batch 0: broken",
		Exchange:     "[receive activation of chunk 0, micro-batch 0 from stage 0]: broken",
		Exchange + 1: "[receive activation of chunk 0, micro-batch 0 from stage 0]: broken",
	} {
		acts := Interleaved(1, 2, 2, 4, 2, true)
		if err := Run(acts, broken{kind}, broken{kind}); !errors.Is(err, errBroken) || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// Claim: invalid times are refused, not simulated.
func TestSimulateRefuses(t *testing.T) {
	c := Config{Stages: 2, Micros: 2}
	for _, times := range []Times{
		Even(Config{Stages: 3}, 1, 1, 0), Even(Config{Stages: 2, Chunks: 2}, 1, 1, 0), Even(c, -1, 1, 0), Even(c, 1, math.NaN(), 0), Even(c, 1, 1, math.Inf(1)),
	} {
		if _, err := Simulate(c, times); exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%v: %v", times, err)
		}
	}
	if _, err := Simulate(Config{Stages: 2, Chunks: 2, Micros: 3}, Times{}); exitcode.CodeOf(err) != exitcode.Usage {
		t.Error(err)
	}
}

// Claim: a transfer takes its time where nothing hides it, and overlapped
// exchanges hide it: one micro-batch through 3 stages takes 4 transfers.
func TestTransfersTakeTime(t *testing.T) {
	c := Config{Stages: 3, Micros: 1}
	line, err := Simulate(c, Even(c, 1, 2, 0.25))
	if err != nil || line.End != 3*3+4*0.25 {
		t.Errorf("%v, %v", line, err)
	}
	over := Config{Stages: 4, Chunks: 2, Micros: 8}
	plain := over
	plain.NoOverlap = true
	hidden, err1 := Simulate(over, Even(over, 2, 4, 0.25))
	open, err2 := Simulate(plain, Even(plain, 2, 4, 0.25))
	if err1 != nil || err2 != nil || hidden.End >= open.End {
		t.Errorf("overlapped %v, not %v, %v %v", hidden.End, open.End, err1, err2)
	}
}
