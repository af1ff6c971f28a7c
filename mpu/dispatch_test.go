package mpu_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/mpu"
	"monotron/mpu/comm"
	"monotron/mpu/comm/inproc"
)

const dispatchExperts, dispatchWidth, dispatchChoices = 4, 3, 2

// routing is the tokens of all ranks with their choices.
type routing struct {
	x, weights []float32
	experts    []int32
}

// routings: evenly, all tokens to one expert, none to the last two.
func routings(tokens int) map[string]routing {
	rng := rand.New(rand.NewPCG(3, 4))
	draw := func(pick func() []int) (r routing) {
		for range tokens {
			for range dispatchWidth {
				r.x = append(r.x, float32(rng.NormFloat64()))
			}
			for _, e := range pick()[:dispatchChoices] {
				r.experts, r.weights = append(r.experts, int32(e)), append(r.weights, rng.Float32())
			}
		}
		return r
	}
	return map[string]routing{
		"random":     draw(func() []int { return rng.Perm(dispatchExperts) }),
		"one expert": draw(func() []int { return []int{2, 0} }),
		"starved":    draw(func() []int { return rng.Perm(2) }),
	}
}

// dispatched is what a rank's tokens get, and their gradients; what it exchanged with others.
type dispatched struct {
	y, dx, dweights []float32

	exchange mpu.Exchange
	bytes    int64
	ranks    []dispatched // of all together
}

// expertly runs the four steps with experts that multiply by their number + 1, and with
// gradients dy = x, on `ranks` ranks of which each expert has `parts`.
func expertly(r routing, tokens, ranks, parts int, all bool) (dispatched, error) {
	outs := make([]dispatched, ranks)
	world := inproc.NewWorld(ranks)
	var mu sync.Mutex
	err := world.Run(func(rank int) error {
		d := ref.Open()
		defer d.Arena.Close()
		var group *comm.Group
		at := mpu.ExpertShare{Experts: dispatchExperts, Here: dispatchExperts, Parts: parts}
		if ranks > 1 {
			members := make([]int, ranks)
			for i := range members {
				members[i] = i
			}
			var err error
			if group, err = world.Group(rank, "etp-ep", members, d); err != nil {
				return err
			}
			at.Here = dispatchExperts * parts / ranks
			at.First, at.Part = rank/parts*at.Here, rank%parts
		}
		n := tokens / ranks
		from := rank * n
		s := d.Arena.Scope(device.Activations)
		x, w, e := s.Alloc(device.F32, int64(n), dispatchWidth), s.Alloc(device.F32, int64(n), dispatchChoices), s.Alloc(device.I32, int64(n), dispatchChoices)
		device.WriteSlice(d, x, r.x[from*dispatchWidth:][:n*dispatchWidth])
		device.WriteSlice(d, w, r.weights[from*dispatchChoices:][:n*dispatchChoices])
		device.WriteSlice(d, e, r.experts[from*dispatchChoices:][:n*dispatchChoices])
		out, err := expertsOf(d, s, mpu.NewDispatcher(at, group, all), at, x, e, w)
		mu.Lock()
		defer mu.Unlock()
		outs[rank] = out
		return err
	})
	full := dispatched{ranks: outs}
	for _, o := range outs {
		full.y, full.dx, full.dweights = append(full.y, o.y...), append(full.dx, o.dx...), append(full.dweights, o.dweights...)
	}
	return full, err
}

func expertsOf(d *device.Device, s *device.Scope, m *mpu.Dispatcher, at mpu.ExpertShare, x, e, w device.Tensor) (out dispatched, err error) {
	sent, err := m.Forward(d, s, mpu.Leaves{}, x, e, w, nil)
	if err != nil {
		return out, err
	}
	factor := s.Like(sent.Weights)
	offsets, factors := device.ReadSlice[int32](d, sent.Offsets), make([]float32, factor.Len())
	for i := range at.Here {
		for p := offsets[i]; p < offsets[i+1]; p++ {
			factors[p] = float32(at.First+i+1) / float32(at.Parts) // the parts' results are added up
		}
	}
	device.WriteSlice(d, factor, factors)
	made, drows, dplaced := s.Like(sent.X), s.Like(sent.X), s.Like(sent.Weights)
	d.ScaleRows(made, sent.X, sent.Weights)
	d.ScaleRows(made, made, factor)
	y := s.Like(x)
	if err := m.Combine(d, sent, y, made); err != nil {
		return out, err
	}
	dout, err := m.CombineBackward(d, s, sent, x, nil)
	if err != nil {
		return out, err
	}
	d.ScaleRows(drows, dout, factor)
	d.RowDots(dplaced, drows, sent.X)
	d.ScaleRows(drows, drows, sent.Weights)
	dx, dw := s.Like(x), s.Like(w)
	if err := m.Backward(d, sent, dx, dw, drows, dplaced); err != nil {
		return out, err
	}
	return dispatched{y: device.ReadSlice[float32](d, y), dx: device.ReadSlice[float32](d, dx), dweights: device.ReadSlice[float32](d, dw),
		exchange: sent.Exchange(), bytes: sent.Bytes()}, d.Sync()
}

// Claim (design, section 5): results do not depend on how many ranks share the experts, nor
// on the dispatcher, bit for bit (gradients: to the rounding of a sum in another order, none
// with two choices), also where an expert, or a rank, gets no token.
func TestDispatchIsOneRank(t *testing.T) {
	const tokens = 24
	for name, r := range routings(tokens) {
		want, err := expertly(r, tokens, 1, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ ranks, parts int }{{2, 1}, {4, 1}, {2, 2}, {4, 2}} {
			for _, all := range []bool{false, true} {
				got, err := expertly(r, tokens, c.ranks, c.parts, all)
				if err != nil {
					t.Fatalf("%s, %+v, to all %t: %v", name, c, all, err)
				}
				for i, pair := range [][2][]float32{{got.y, want.y}, {got.dx, want.dx}, {got.dweights, want.dweights}} {
					if !slices.Equal(pair[0], pair[1]) {
						t.Errorf("%s, %+v, to all %t: %s differ", name, c, all, [...]string{"results", "gradients", "gradients of weights"}[i])
					}
				}
			}
		}
	}
}

// Claim: y is what the choices say, by plain sums.
func TestDispatchAgainstPlainSums(t *testing.T) {
	const tokens = 8
	for name, r := range routings(tokens) {
		got, err := expertly(r, tokens, 1, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		for i := range tokens {
			for c := range dispatchWidth {
				sum := float32(0)
				for j := range dispatchChoices {
					at := i*dispatchChoices + j
					sum += float32(float32(r.x[i*dispatchWidth+c]*r.weights[at]) * float32(r.experts[at]+1))
				}
				if fmt.Sprintf("%.5g", sum) != fmt.Sprintf("%.5g", got.y[i*dispatchWidth+c]) {
					t.Errorf("%s: token %d, channel %d: %g, want %g", name, i, c, got.y[i*dispatchWidth+c], sum)
				}
			}
		}
	}
}

// Claim: what a rank says it sends is what the other says it gets; a token travels once to a
// rank however many of its experts are there; and the bytes are those of the formula: there,
// the values, choices and weights of a token, and back the values of each choice, and the
// gradients the other way round.
func TestExchangesAreCounted(t *testing.T) {
	const tokens, ranks, number = 24, 4, 4 // bytes of an f32, an i32
	for name, r := range routings(tokens) {
		got, err := expertly(r, tokens, ranks, 1, false)
		if err != nil {
			t.Fatal(err)
		}
		sent, chosen := [ranks][ranks]int64{}, [ranks][ranks]int64{} // by rank of the token, of the expert
		for i := range tokens {
			goes := map[int]bool{}
			for _, e := range r.experts[i*dispatchChoices:][:dispatchChoices] {
				at := int(e) * ranks / dispatchExperts
				goes[at] = true
				chosen[i*ranks/tokens][at]++
			}
			for at := range goes {
				sent[i*ranks/tokens][at]++
			}
		}
		for a, mine := range got.ranks {
			bytes := int64(0)
			for b, other := range got.ranks {
				if mine.exchange.Sent[b] != sent[a][b] || other.exchange.Received[a] != sent[a][b] {
					t.Errorf("%s: rank %d sends %d tokens to rank %d, which gets %d; want %d", name, a, mine.exchange.Sent[b], b, other.exchange.Received[a], sent[a][b])
				}
				if a != b {
					there, back := int64(dispatchWidth+2*dispatchChoices), int64(dispatchWidth)
					bytes += number * (sent[a][b]*there + chosen[b][a]*back)                           // forward: tokens, results of others' tokens
					bytes += number * (chosen[a][b]*back + sent[b][a]*(dispatchWidth+dispatchChoices)) // backward
				}
			}
			if mine.bytes != bytes {
				t.Errorf("%s: rank %d has sent %d bytes, by the formula %d", name, a, mine.bytes, bytes)
			}
		}
	}
}

// recording is an engine that writes down when collectives begin, and are waited for.
type recording struct {
	comm.Engine
	words *[]string
}

func (e recording) Start(c *comm.Collective) comm.Work {
	*e.words = append(*e.words, "begin")
	return recordingWork{e.Engine.Start(c), e.words}
}

type recordingWork struct {
	comm.Work
	words *[]string
}

func (w recordingWork) Wait() error {
	*w.words = append(*w.words, "wait")
	return w.Work.Wait()
}

// Claim: what is computed during an exchange is computed once, after all of it has begun and
// before any of it is waited for; its error ends the exchange.
func TestDuringTheExchange(t *testing.T) {
	failed := errors.New("of what is beside")
	world := inproc.NewWorld(2)
	devices := []*device.Device{ref.Open(), ref.Open()} // closed when both ranks have ended: a rank reads the memory of the other
	defer devices[0].Arena.Close()
	defer devices[1].Arena.Close()
	err := world.Run(func(rank int) error {
		d := devices[rank]
		group, err := world.Group(rank, "ep", []int{0, 1}, d)
		if err != nil {
			return err
		}
		var words []string
		group = group.Over(func(e comm.Engine) comm.Engine { return recording{e, &words} })
		during := func() error {
			words = append(words, "beside")
			return nil
		}
		at := mpu.ExpertShare{Experts: 2, First: rank, Here: 1, Parts: 1}
		m := mpu.NewDispatcher(at, group, false)
		s := d.Arena.Scope(device.Activations)
		x, w, e := s.Alloc(device.F32, 2, 3), s.Alloc(device.F32, 2, 1), s.Alloc(device.I32, 2, 1)
		d.Fill(x, 1)
		d.Fill(w, 1)
		device.WriteSlice(d, e, []int32{0, 1})
		sent, err := m.Forward(d, s, mpu.Leaves{}, x, e, w, during)
		if err != nil {
			return err
		}
		if got, want := strings.Join(words, " "), "begin wait begin begin begin beside wait wait wait"; got != want {
			t.Errorf("forward: %s; want %s", got, want)
		}
		words = nil
		if _, err := m.CombineBackward(d, s, sent, x, during); err != nil {
			return err
		}
		if got, want := strings.Join(words, " "), "begin beside wait"; got != want {
			t.Errorf("backward: %s; want %s", got, want)
		}
		if _, err := m.CombineBackward(d, s, sent, x, func() error { return failed }); rank == 0 && !errors.Is(err, failed) {
			t.Errorf("%v, want %v", err, failed)
		}
		return failed
	})
	if !errors.Is(err, failed) {
		t.Error(err)
	}
}

// liar is an engine whose gathered numbers are wrong.
type liar struct {
	comm.Engine
	d    *device.Device
	says []int32 // instead of the other rank's numbers
}

func (e liar) Start(c *comm.Collective) comm.Work {
	w := e.Engine.Start(c)
	if c.Op == comm.AllGather && c.Out.DType == device.I32 {
		if err := w.Wait(); err != nil {
			return comm.Finished(err)
		}
		device.WriteSlice(e.d, c.Out.Slice(0, 1, 1).Reshape(int64(len(e.says))), e.says)
		return comm.Finished(nil)
	}
	return w
}

// Claim: counts of another rank that its choices cannot have are refused, with the rank,
// before memory is taken or read by them.
func TestCountsAreBelievable(t *testing.T) {
	for _, says := range [][]int32{{0, -3, 1, 0, 2, 4}, {0, 2, 4, 0, 2, 1 << 30}, {1, 2, 4, 0, 2, 4}} {
		world := inproc.NewWorld(2)
		err := world.Run(func(rank int) error {
			d := ref.Open()
			defer d.Arena.Close()
			group, err := world.Group(rank, "ep", []int{0, 1}, d)
			if err != nil {
				return err
			}
			if rank == 0 {
				group = group.Over(func(e comm.Engine) comm.Engine { return liar{e, d, says} })
			}
			s := d.Arena.Scope(device.Activations)
			defer s.Release()
			x, experts, weights := s.Alloc(device.F32, 2, 4), s.Alloc(device.I32, 2, 2), s.Alloc(device.F32, 2, 2)
			d.Fill(x, 1)
			d.Fill(weights, 1)
			device.WriteSlice(d, experts, []int32{0, 1, 2, 3})
			at := mpu.ExpertShare{Experts: 4, First: 2 * rank, Here: 2, Parts: 1}
			_, err = mpu.NewDispatcher(at, group, false).Forward(d, s, mpu.Leaves{}, x, experts, weights, nil)
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "rank 1 of group ep has at most 4 expert choices, but sent the offsets ") {
			t.Errorf("%v: %v", says, err)
		}
	}
}
