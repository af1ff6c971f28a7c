package dataset

import (
	"io"
	"slices"
	"sync/atomic"
	"testing"

	"monotron/internal/exitcode"
)

// counted is a dataset that counts what is read of it.
type counted struct {
	n    int64
	read atomic.Int64
}

func (c *counted) Len() int64 { return c.n }
func (c *counted) Sample(k int64) (Sample, error) {
	c.read.Add(1)
	if k == 666 {
		return Sample{}, exitcode.Errorf(exitcode.BadData, "sample %d is damaged", k)
	}
	return Sample{Tokens: []int32{int32(k)}}, nil
}

// Claim: with any number of workers, on any rank and from any position, the loader
// gives the sampler's micro-batches, and reads a bounded number ahead.
func TestLoader(t *testing.T) {
	for _, order := range []Order{Single, Cyclic} {
		for _, workers := range []int{0, 1, 3} {
			sampler, err := NewSampler(SamplerConfig{Order: order, Total: 600, MicroBatch: 2, Rank: 1, DP: 3})
			if err != nil {
				t.Fatal(err)
			}
			set := &counted{n: 600}
			l := NewLoader(set, func(at int64) ([]int64, error) { return sampler.Batch(at, nil) }, sampler.Advance(), workers)
			asked := int64(0)
			for _, start := range []int64{0, 300, 6, 120} { // resumed at other positions
				for at := start; at < start+60; at += sampler.Advance() {
					want, err := sampler.Batch(at, nil)
					if err != nil {
						t.Fatal(err)
					}
					samples, numbers, err := l.MicroBatch(at)
					if err != nil || !slices.Equal(numbers, want) || len(samples) != 2 || samples[0].Tokens[0] != int32(want[0]) || samples[1].Tokens[0] != int32(want[1]) {
						t.Fatalf("%d workers, place %d: %v, %v, want %v", workers, at, numbers, err, want)
					}
					asked += 2
				}
			}
			if most := asked + 4*int64(2*workers*2); set.read.Load() > most {
				t.Errorf("%d workers: %d samples were read for %d", workers, set.read.Load(), asked)
			}
		}
	}
}

// Claim: an error comes at its position and not before, also the end of the data;
// the loader continues after it.
func TestLoaderErrors(t *testing.T) {
	sampler, err := NewSampler(SamplerConfig{Total: 700, MicroBatch: 2, DP: 1})
	if err != nil {
		t.Fatal(err)
	}
	l := NewLoader(&counted{n: 700}, func(at int64) ([]int64, error) { return sampler.Batch(at, nil) }, 2, 2)
	for at := int64(660); at < 700; at += 2 {
		if _, _, err := l.MicroBatch(at); (err != nil) != (at == 666) {
			t.Errorf("place %d: %v", at, err)
		}
	}
	if _, _, err := l.MicroBatch(700); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	if _, _, err := l.MicroBatch(0); err != nil {
		t.Errorf("after the end: %v", err)
	}
}
