//go:build cgo

package inproc

import (
	"testing"
	"time"

	"monotron/csrc/cpu"
)

// BenchmarkAllReduce measures an all-reduce as a share of the speed that the copy rate allows.
func BenchmarkAllReduce(b *testing.B) {
	for _, ranks := range []int{2, 4} {
		s, err := Bench(cpu.Open, ranks, 64<<20, time.Second)
		if err != nil {
			b.Fatal(err)
		}
		b.Log(s)
	}
}
