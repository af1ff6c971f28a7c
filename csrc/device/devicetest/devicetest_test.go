package devicetest

import (
	"math"
	"testing"

	"monotron/csrc/device"
)

// Claim: every op has cases, and a case's name is its own (its seed comes from it).
func TestTableIsComplete(t *testing.T) {
	seen, ops := map[string]bool{}, map[device.Op]int{}
	for _, c := range Cases() {
		ops[c.Op]++
		name := c.Op.String() + "/" + c.Name
		if seen[name] {
			t.Errorf("two cases are called %s", name)
		}
		seen[name] = true
	}
	for op := range device.Ops {
		if ops[op] == 0 {
			t.Errorf("%s has no case", op)
		}
	}
}

// Claim: whoever draws cases draws of every op, and a case's name is its own.
func TestDrawnIsComplete(t *testing.T) {
	seen, ops := map[string]bool{}, map[device.Op]int{}
	for _, c := range Drawn(1, 1) {
		ops[c.Op]++
		seen[c.Op.String()+c.Name] = true
	}
	again := Drawn(1, 2)
	for op := range device.Ops {
		if ops[op] == 0 {
			t.Errorf("of %s none was drawn", op)
		}
	}
	for _, c := range again {
		if delete(seen, c.Op.String()+c.Name); len(seen) == 0 {
			return
		}
	}
	t.Errorf("the same seed draws others: %v", seen)
}

// Claim: compare finds one wrong element, one changed input, one moved zero, a
// lost NaN, and lets pass what is within the tolerance.
func TestCompare(t *testing.T) {
	made := func(before, after []float32, out bool, tol Tol) buffer {
		return buffer{full: device.View(nil, device.F32, int64(len(after))), before: device.AsBytes(before), after: device.AsBytes(after), out: out, tol: tol}
	}
	nan := float32(math.NaN())
	start := []float32{0, 0, 0}
	for _, c := range []struct {
		name      string
		want, got []float32
		out       bool
		tol       Tol
		fails     bool
	}{
		{"equal", []float32{1, 2, nan}, []float32{1, 2, nan}, true, exact, false},
		{"near", []float32{1, 2, 3}, []float32{1, 2.01, 3}, true, Tol{Rel: 0.01}, false},
		{"far", []float32{1, 2, 3}, []float32{1, 2.03, 3}, true, Tol{Rel: 0.01}, true},
		{"lost nan", []float32{1, 2, nan}, []float32{1, 2, 3}, true, Tol{Abs: 1e9}, true},
		{"new nan", []float32{1, 2, 3}, []float32{1, 2, nan}, true, Tol{Abs: 1e9}, true},
		{"new inf", []float32{1, 2, 3}, []float32{1, 2, float32(math.Inf(1))}, true, Tol{Abs: 1e9}, true},
		{"moved zero", []float32{0, 1e-9, 3}, []float32{1e-9, 0, 3}, true, Tol{Abs: 1}.masked(), true},
		{"changed input", []float32{0, 0, 0}, []float32{0, 0, 1e-30}, false, exact, true},
	} {
		want := made(start, c.want, c.out, c.tol)
		if err := want.compare(made(start, c.got, c.out, c.tol)); (err != nil) != c.fails {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Claim: a share has every kind of every op, other cases with another seed, and about one in n of the rest.
func TestShare(t *testing.T) {
	all := Cases()
	one, other := share(all, 10, 1), share(all, 10, 2)
	kinds := map[string]bool{}
	for _, c := range one {
		for _, kind := range kindsOf(c.Name) {
			kinds[c.Op.String()+" "+kind] = true
		}
	}
	for _, c := range all {
		for _, kind := range kindsOf(c.Name) {
			if !kinds[c.Op.String()+" "+kind] {
				t.Errorf("%s %s has no case in the share", c.Op, kind)
			}
		}
	}
	if least, most := len(all)/20, len(all)/5+len(kinds); len(one) < least || len(one) > most {
		t.Errorf("%d of %d cases, want between %d and %d", len(one), len(all), least, most)
	}
	same := len(one) == len(other)
	for i := 0; same && i < len(one); i++ {
		same = one[i].Op == other[i].Op && one[i].Name == other[i].Name
	}
	if same {
		t.Error("two seeds pick the same cases")
	}
	if len(share(all, 0, 1)) != len(all) {
		t.Error("without SHARE some cases are missing")
	}
}
