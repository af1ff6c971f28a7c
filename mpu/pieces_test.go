package mpu

import (
	"fmt"
	"testing"
)

// elementsOf maps every local element of pieces to its global index, as text.
func elementsOf(t *testing.T, pieces []Piece) map[int64]string {
	t.Helper()
	at := map[int64]string{}
	for _, p := range pieces {
		for e := range p.Len() {
			index, rest := make([]int64, len(p.Size)), e
			for d := len(p.Size) - 1; d >= 0; d-- {
				index[d] = p.From[d] + rest%p.Size[d]
				rest /= p.Size[d]
			}
			if old, twice := at[p.Local+e]; twice {
				t.Fatalf("local element %d is %s and %v", p.Local+e, old, index)
			}
			at[p.Local+e] = fmt.Sprint(index)
		}
	}
	return at
}

// Claim (pieces.go): a flat stretch of a local buffer is translated to
// pieces that hold exactly its elements, each at its position; all stretches of all
// small boxes of rank 1 to 4.
func TestStretchOfEveryBox(t *testing.T) {
	for rank := 1; rank <= 4; rank++ {
		for code := range pow(3, rank) {
			p := Piece{Local: 2}
			for d, c := 0, code; d < rank; d, c = d+1, c/3 {
				p.Size = append(p.Size, int64(c%3+1))
				p.From = append(p.From, int64(10*d+1))
			}
			full := elementsOf(t, []Piece{p})
			end := p.Len() + 4 // padding before and after
			for from := int64(0); from <= end; from++ {
				for to := from; to <= end; to++ {
					got := Stretch([]Piece{p}, from, to-from)
					if len(got) > 2*rank-1 {
						t.Fatalf("box %v: %d..%d becomes %d boxes", p.Size, from, to, len(got))
					}
					checkStretch(t, full, elementsOf(t, got), from, to)
				}
			}
		}
	}
}

func pow(b, n int) int {
	if n == 0 {
		return 1
	}
	return b * pow(b, n-1)
}

func checkStretch(t *testing.T, full, got map[int64]string, from, to int64) {
	t.Helper()
	n := 0
	for e, index := range full {
		if e < from || e >= to {
			continue
		}
		n++
		if got[e-from] != index {
			t.Fatalf("%d..%d: element %d is %s, want %s", from, to, e, got[e-from], index)
		}
	}
	if len(got) != n {
		t.Fatalf("%d..%d: %d elements, want %d", from, to, len(got), n)
	}
}

// Claim: pieces of one buffer, with padding between them, are cut together, and the
// complete buffer gives its own pieces back.
func TestStretchOfSeveralPieces(t *testing.T) {
	p := []Piece{{From: []int64{4, 0}, Size: []int64{2, 3}, Local: 0}, {From: []int64{20, 0}, Size: []int64{3, 3}, Local: 8}}
	full := elementsOf(t, p)
	for from := int64(0); from <= 20; from++ {
		for to := from; to <= 20; to++ {
			checkStretch(t, full, elementsOf(t, Stretch(p, from, to-from)), from, to)
		}
	}
	if got := Stretch(p, 0, 20); fmt.Sprint(got) != fmt.Sprint(p) {
		t.Errorf("the whole buffer: %v, want %v", got, p)
	}
}
