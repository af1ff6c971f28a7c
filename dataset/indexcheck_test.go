package dataset

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"testing"
)

// indexOf is an index in memory of n sequences of 0 to 3 tokens, each a document.
func indexOf(n int64) *Indexed {
	x := &Indexed{prefix: "p", dtype: U16, n: n, at: tables{headerBytes, 4, headerBytes + 4*n, headerBytes + 12*n}, idx: &blob{path: "p.idx"}, bin: &blob{path: "p.bin"}}
	x.sizes, x.pointers, x.documents = make([]byte, 4*n), make([]byte, 8*n), make([]byte, 8*n+8)
	for i := range n {
		binary.LittleEndian.PutUint32(x.sizes[4*i:], uint32(i*7%4))
		binary.LittleEndian.PutUint64(x.pointers[8*i:], uint64(x.bin.size))
		binary.LittleEndian.PutUint64(x.documents[8*i+8:], uint64(i+1))
		x.bin.size += i * 7 % 4 * 2
	}
	return x
}

// Claim (docs/data.md): the complete .idx is checked, by every processor a part: counts and the error,
// that of the first wrong entry, are those of one processor. Entries that are wrong lie also at the
// edges of the parts.
func TestIndexIsCheckedInParts(t *testing.T) {
	const n = 3*spanEntries + 12345
	x := indexOf(n)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	// checked gives the counts and the error with a number of processors.
	checked := func(processors int) (tokens, longest int64, text string) {
		runtime.GOMAXPROCS(processors)
		x.tokens, x.longest = 0, 0
		if err := x.check(); err != nil {
			return 0, 0, err.Error()
		}
		return x.tokens, x.longest, ""
	}
	if tokens, longest, text := checked(4); tokens*2 != x.bin.size || longest != 3 || text != "" {
		t.Fatalf("%d tokens, the longest of %d: %s", tokens, longest, text)
	}
	r := rand.New(rand.NewPCG(1, 2))
	edges := []int64{0, 1, n / 4, n/4 - 1, n / 4 * 2, n/4*3 - 1, n / 4 * 3, n - 1}
	for try := range 60 {
		// One to three entries get a wrong value: a length, an offset or a boundary.
		var undo []func()
		for range 1 + r.IntN(3) {
			at := edges[r.IntN(len(edges))]
			if try%2 == 0 {
				at = r.Int64N(n)
			}
			field := [][]byte{x.sizes[4*at : 4*at+4], x.pointers[8*at : 8*at+8], x.documents[8*at : 8*at+8]}[r.IntN(3)]
			before := append([]byte(nil), field...)
			undo = append(undo, func() { copy(field, before) })
			field[len(field)-1-r.IntN(2)] ^= byte(1 + r.IntN(255))
		}
		_, _, one := checked(1)
		_, _, four := checked(4)
		if one == "" || one != four {
			t.Errorf("try %d: with one processor %q, with four %q", try, one, four)
		}
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}
}

func BenchmarkIndexCheck(b *testing.B) {
	x := indexOf(20e6)
	for b.Loop() {
		if err := x.check(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(x.n), "ns/sequence")
}
