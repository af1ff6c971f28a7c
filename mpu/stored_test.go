package mpu

import (
	"fmt"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
)

// Claim: a parameter of stacked tensors is kept as the tensors it is made of: every element
// of every shard stands where it belongs, whatever the cut by experts, rows, columns and
// shards.
func TestStackedParametersAreKeptApart(t *testing.T) {
	d := ref.Open()
	defer d.Arena.Close()
	each := func(string) func(int64) string {
		return func(i int64) string { return fmt.Sprint("expert ", i) }
	}
	const experts, out, in = 6, 4, 6
	for _, c := range []struct {
		at      ExpertShare
		rows    [][2]int64
		tensors int
	}{
		{ExpertShare{Experts: experts, Here: experts, Parts: 1}, [][2]int64{{0, out}}, 6},
		{ExpertShare{Experts: experts, First: 3, Here: 3, Part: 1, Parts: 2}, [][2]int64{{1, 1}, {3, 1}}, 3},
		{ExpertShare{Experts: experts, First: 2, Here: 2, Part: 1, Parts: 2}, nil, 2},
	} {
		p := NewExpertLinear(c.at, LinearConfig{Name: "x", Out: out, In: in, Rows: c.rows, Each: each}).Weight
		p.Value = d.Arena.Alloc(device.Parameters, device.F32, p.Shape...)
		device.WriteSlice(d, p.Value, numbered(p))
		for _, shard := range [][2]int64{{0, p.Len()}, {5, p.Len() - 5}, {7, 11}} {
			names := map[string]bool{}
			part := p.Value.Reshape(p.Len()).Slice(0, shard[0], shard[1])
			n := int64(0)
			for _, s := range p.Stored("", part, shard[0], true) {
				names[s.Name] = true
				values := device.ReadSlice[float32](d, s.Tensor)
				for _, piece := range s.Pieces {
					n += piece.Len()
					for e := range piece.Len() {
						row, column := e/piece.Size[1]+piece.From[0], e%piece.Size[1]+piece.From[1]
						if got, want := values[piece.Local+e], fmt.Sprintf("%s %d %d", s.Name, row, column); named3(got) != want {
							t.Fatalf("%+v, shard %v: %s holds %s", c, shard, want, named3(got))
						}
					}
				}
			}
			if n != shard[1] || shard[1] == p.Len() && len(names) != c.tensors {
				t.Errorf("%+v, shard %v: %d elements of %d, tensors %v", c, shard, n, shard[1], names)
			}
		}
	}
}

// numbered is every local element's index in the global tensor as one number.
func numbered(p *Param) []float32 {
	x := make([]float32, p.Len())
	for _, piece := range p.Pieces {
		for e := range piece.Len() {
			i, rest := e/(piece.Size[1]*piece.Size[2]), e%(piece.Size[1]*piece.Size[2])
			x[piece.Local+e] = float32((piece.From[0]+i)*10000 + (piece.From[1]+rest/piece.Size[2])*100 + piece.From[2] + rest%piece.Size[2])
		}
	}
	return x
}

func named3(x float32) string {
	n := int(x)
	return fmt.Sprintf("expert %d %d %d", n/10000, n/100%100, n%100)
}
