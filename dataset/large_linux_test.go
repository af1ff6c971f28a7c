package dataset

import (
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"monotron/internal/exitcode"
	"monotron/internal/osadvice"
)

// sparse is an array of zeros, of which only what is written takes memory.
func sparse(t *testing.T, dtype string, shape ...int64) Array {
	t.Helper()
	a := Array{DType: dtype, Shape: shape, width: int(width(dtype))}
	memory, err := syscall.Mmap(-1, 0, int(a.bytes()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON|syscall.MAP_NORESERVE)
	if err != nil {
		t.Skipf("%d bytes of addresses are not to be had here: %v", a.bytes(), err)
	}
	t.Cleanup(func() { _ = syscall.Munmap(memory) })
	a.Data = memory
	return a
}

// alike is a source of n sequences of the same length, whose tokens are the last digits of their positions.
type alike struct{ n, size int64 }

func (a alike) Len() int64                { return a.n }
func (a alike) Size(int64) int64          { return a.size }
func (a alike) Longest() int64            { return a.size }
func (a alike) Where(i, off int64) string { return "nowhere" }
func (a alike) Slice(i, off, n int64, dst []int32) ([]int32, error) {
	for k := range n {
		dst = append(dst, int32((i*a.size+off+k)%997))
	}
	return dst, nil
}

// Claim (docs/data.md): a plan of more than 2^33 samples has the sizes and types that hold them.
func TestPlanOfManySamples(t *testing.T) {
	const sequence = 1 << 17
	g, err := newGPT(GPT{shape: shape{sequence: sequence, extra: 1}, source: alike{1 << 20, math.MaxInt32}, Name: "GPTDataset", Prefix: "d", Split: Train, End: 1 << 20}, null(t, 1000), "1", nil)
	if err != nil {
		t.Fatal(err)
	}
	tokens := int64(math.MaxInt32) << 20
	if want := (tokens - 1) / sequence; g.Len() != want || want < 1<<33 {
		t.Errorf("%d samples, want %d", g.Len(), want)
	}
	bytes, ok := g.plan.arrayBytes(1<<20, width(g.sampleType()), width(shuffleType(g.plan.samples)))
	if want := 4<<20 + (g.Len()+1)*(2*4+8); g.sampleType() != "<i4" || shuffleType(g.plan.samples) != "<i8" || !ok || bytes != want {
		t.Errorf("%s and %s, %d bytes, want %d", g.sampleType(), shuffleType(g.plan.samples), bytes, want)
	}
	// A thousand epochs: more entries of the document index than 32 bits count.
	num := int64(1000) << 51 / sequence
	many, err := newGPT(GPT{shape: g.shape, source: alike{1 << 22, 1 << 29}, Name: "GPTDataset", Prefix: "d", Split: Train, End: 1 << 22, Num: &num}, null(t, 1000), "1", nil)
	if err != nil || many.sampleType() != "<i8" || many.Len() < num || many.Epochs != 1001 { // a token more than a thousand
		t.Errorf("%v: %d epochs, %s, %d samples of %d", err, many.Epochs, many.sampleType(), many.Len(), num)
	}
}

// Claim (docs/data.md): 2^32 sequences are refused before anything is built, with what to do; so many in a blend are not.
func TestTooManySequences(t *testing.T) {
	_, err := newGPT(GPT{shape: shape{sequence: 8, extra: 1}, source: alike{1 << 32, 9}, Name: "GPTDataset", Prefix: "d", Split: Train, End: 1 << 32}, null(t, 1000), "1", nil)
	if exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "4294967296") || !strings.Contains(err.Error(), "blend") {
		t.Error(err)
	}
	for n, want := range map[int64][2]int64{10_000_000_000: {9_690_000_000, 9_990_000_000}, 1 << 33: {8323646620, 8581344657}} {
		rows, err := parseSplit("969,30,1")
		if err != nil {
			t.Fatal(err)
		}
		if first, end := sequences(rows[1], n); first != want[0] || end != want[1] {
			t.Errorf("of %d sequences the second split has %d to %d, want %v", n, first, end, want)
		}
	}
}

// Claim: samples behind the 2^33rd of a dataset, and of a blend, are those that the arrays name.
func TestSamplesBehind33Bits(t *testing.T) {
	const n = 1<<33 + 5
	g := &GPT{shape: shape{sequence: 6, extra: 1, pad: -1, eod: -1}, source: alike{3 << 30, 10}, Name: "GPTDataset", Prefix: "d", Split: Train, End: math.MaxInt32, plan: plan{samples: n}}
	g.DocumentIndex, g.SampleIndex, g.ShuffleIndex = sparse(t, "<i4", 1<<33), sparse(t, "<i8", n+1, 2), sparse(t, "<i8", n)
	// Sample n - 2 is row n - 1, which begins in the document of entry 2^33 - 3 and ends in the next.
	g.ShuffleIndex.set(n-2, n-1)
	for i, v := range []int64{1<<33 - 3, 7, 1<<33 - 2, 3} {
		g.SampleIndex.set(2*(n-1)+int64(i), v)
	}
	g.DocumentIndex.set(1<<33-3, math.MaxInt32-1)
	g.DocumentIndex.set(1<<33-2, 5)
	var want []int32
	for _, at := range []int64{(math.MaxInt32-1)*10 + 7, (math.MaxInt32-1)*10 + 8, (math.MaxInt32-1)*10 + 9, 50, 51, 52} {
		want = append(want, int32(at%997))
	}
	s, err := g.Sample(n - 2)
	if err != nil || !slices.Equal(s.Tokens, want) {
		t.Errorf("%v, want %v: %v", s.Tokens, want, err)
	}
	// The same by a blend.
	b := &Blended{Members: []*GPT{nil, g}, Split: Train, DatasetIndex: sparse(t, "<i2", n), DatasetSampleIndex: sparse(t, "<i8", n)}
	b.DatasetIndex.set(n-1, 1)
	b.DatasetSampleIndex.set(n-1, n-2)
	if s, err = b.Sample(n - 1); err != nil || !slices.Equal(s.Tokens, want) {
		t.Errorf("of a blend %v, want %v: %v", s.Tokens, want, err)
	}
}

// Claim: the sample index counts beyond 2^32 entries of the document index: samples of documents of three tokens begin where a division says.
func TestSampleIndexBeyond32Bits(t *testing.T) {
	if os.Getenv("MONOTRON_LARGE") == "" {
		t.Skip("it walks 2^32 entries: tests/proofs/data/large.sh does")
	}
	const entries, sequence = 1<<32 + 1<<20, 1 << 27
	docs := sparse(t, "<u4", entries) // all the document 0
	osadvice.HugePages(docs.Data)
	all := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(docs.Data))), entries)
	samples := (3*int64(entries) - 1) / sequence
	rows := make([]int64, 2*(samples+1))
	if n := fillRows(rows, all, []uint32{3}, sequence, 1); n != samples+1 {
		t.Fatalf("%d rows, want %d", n, samples+1)
	}
	for i := range samples + 1 {
		if at := i * sequence; rows[2*i] != at/3 || rows[2*i+1] != at%3 {
			t.Fatalf("sample %d begins at entry %d, token %d, want %d and %d", i, rows[2*i], rows[2*i+1], at/3, at%3)
		}
	}
	if rows[2*samples] <= math.MaxUint32 {
		t.Errorf("the last sample begins at entry %d", rows[2*samples])
	}
}

// Claim: the order of more than 2^32 items is drawn as numpy draws it: the numbers are RandomState(seed).randint(0, n, dtype=int64)'s.
func TestDrawsBeyond32Bits(t *testing.T) {
	for _, c := range []struct {
		seed uint32
		n    uint64
		want []uint64
	}{
		{7, 1 << 33, []uint64{5271381188, 5664942582, 8496402643, 6251689575}},
		{11, 10_000_000_000, []uint64{4588342975, 2854952027, 5128687543, 8273322316}},
		{12, 1<<32 + 6, []uint64{3751169277, 1505292720, 145874993, 1268891525}},
	} {
		m := newMersenne(c.seed)
		for i, want := range c.want {
			if got := m.upTo(c.n - 1); got != want {
				t.Errorf("draw %d below %d: %d, numpy's is %d", i, c.n, got, want)
			}
		}
	}
}
