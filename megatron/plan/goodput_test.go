package plan

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// Claim (docs/plan.md): the goodput is that of runs with failures drawn at random, whatever is
// interrupted: steps, checkpoints or restarts.
func TestGoodputIsThatOfDrawnFailures(t *testing.T) {
	for _, c := range []struct {
		f       Failures
		devices int
		every   float64
	}{
		{Failures{Between: 5e7, Restart: 300, Save: 30}, 1024, 3600},
		{Failures{Between: 1.8e8, Restart: 600, Save: 20}, 16384, 500},
		{Failures{Between: 1e6, Restart: 500, Save: 200}, 1000, 400}, // fails every 1,000 s
		{Failures{Between: 1e8, Restart: 120}, 4096, 900},
	} {
		g := c.f.Goodput(c.devices, 8, c.every)
		random := rand.New(rand.NewPCG(3, uint64(c.devices)))
		between := c.f.Between / float64(c.devices)
		kept, now, next := 0.0, 0.0, random.ExpFloat64()*between
		// survive passes time without a failure, or up to the next one.
		survive := func(seconds float64) bool {
			if now+seconds <= next {
				now += seconds
				return true
			}
			now, next = next, next+random.ExpFloat64()*between
			return false
		}
		for range 200_000 {
			for !survive(c.every + c.f.Save) {
				for !survive(c.f.Restart) {
				}
			}
			kept += c.every
		}
		if got := kept / now; math.Abs(got/g.Share-1) > 0.01 { // 200,000 segments, some percent of spread each
			t.Errorf("%+v on %d devices every %g s: %.4f, drawn %.4f", c.f, c.devices, c.every, g.Share, got)
		}
	}
}

// Claim: the best interval is Daly's, to the order of his estimate, and no other is better.
func TestBestInterval(t *testing.T) {
	for _, c := range []struct{ between, save, restart float64 }{{10_000, 10, 60}, {10_000, 100, 600}, {100_000, 30, 300}, {2_000, 60, 60}} {
		g := Failures{Between: c.between * 64, Save: c.save, Restart: c.restart}.Goodput(64, 8, 0)
		x := c.save / (2 * c.between)
		daly := math.Sqrt(2*c.save*c.between)*(1+math.Sqrt(x)/3+x/9) - c.save
		if math.Abs(g.Best/daly-1) > 0.01 || g.Every != g.Best || g.Share != g.AtBest {
			t.Errorf("%+v: every %.1f s, Daly says %.1f", c, g.Best, daly)
		}
		for _, other := range []float64{0.8, 1.25} {
			if worse := (Failures{Between: c.between * 64, Save: c.save, Restart: c.restart}).Goodput(64, 8, other*g.Best); worse.Share >= g.Share {
				t.Errorf("%+v: %.5f at %.2f of the best interval, which has %.5f", c, worse.Share, other, g.Share)
			}
		}
	}
}

// Claim: without failures to speak of only checkpoints cost; a checkpoint that does not delay the steps is as
// frequent as it can be; spares that suffice cost no waiting.
func TestGoodputAtItsEnds(t *testing.T) {
	if g := (Failures{Between: 1e15, Save: 10, Restart: 60}).Goodput(8, 8, 90); math.Abs(g.Share-0.9) > 1e-6 {
		t.Errorf("share %v of 90 s of steps and 10 s of saving", g.Share)
	}
	if g := (Failures{Between: 1e8, Late: 100, Restart: 60}).Goodput(8000, 8, 0); g.Best != 100 {
		t.Errorf("saves beside the steps that take 100 s are %v s apart", g.Best)
	}
	with := Failures{Between: 1.8e8, Save: 10, Restart: 300, Repair: 86400}
	alone := with.Goodput(16384, 8, 0)
	with.Spares = 2
	few := with.Goodput(16384, 8, 0)
	with.Spares = 40
	many := with.Goodput(16384, 8, 0)
	if !(few.Share < many.Share && many.Waits < 1e-6 && few.Waits > 0.5) || math.Abs(many.Share-alone.Share) > 1e-6 {
		t.Errorf("2 spares %+v, 40 spares %+v, no waiting %+v", few, many, alone)
	}
	if g := (Failures{Between: 1000, Save: 100, Restart: 100}).Goodput(1000, 8, 0); g.Share < 0 || g.Share > 1e-9 || math.IsNaN(g.Best) {
		t.Errorf("a run that fails each second has the share %v every %v s", g.Share, g.Best)
	}
}

// Claim (docs/plan.md): the failure rate of h100 is that of Llama 3's training, 419 unexpected interruptions of 16,384
// devices in 54 days, of whose time more than 90 % was effective; the page's table is that of 64 to 16,384 devices, with the cost of
// a million device-hours of steps.
func TestGoodputOfLlama3(t *testing.T) {
	m, err := ReadMachine("h100")
	if err != nil {
		t.Fatal(err)
	}
	f := Failures{Between: m.DeviceHours * 3600, Restart: 300}
	if n := 54 * 86400 / (f.Between / 16384); math.Abs(n-419) > 1 {
		t.Errorf("%.1f interruptions in 54 days, there were 419", n)
	}
	page, err := os.ReadFile("../../docs/plan.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, devices := range []int{64, 256, 1024, 4096, 16384} {
		var cells []string
		hours := 0.0
		for _, save := range []float64{20, 120} {
			f.Save = save
			g := f.Goodput(devices, m.PerNode, 0)
			hours = g.Between / 3600
			total, lost := g.Cost(1e6, 2.5, 0)
			cells = append(cells, fmt.Sprintf("%.0f min | %.1f %% | %.2f | %.2f", g.Best/60, 100*g.Share, total/1e6, lost/1e6))
			if save == 20 && g.Share < 0.9 {
				t.Errorf("%d devices: %v, Llama 3's run had more", devices, g.Share)
			}
		}
		digits := 1
		if hours >= 100 {
			digits = 0
		}
		row := fmt.Sprintf("| %.*f h | %s |", digits, hours, strings.Join(cells, " | "))
		if !strings.Contains(string(page), row) {
			t.Errorf("%d devices: the page's table has no row with %s", devices, row)
		}
	}
}
