package nf4

import (
	"math"
	"slices"
	"sync"
)

// DynamicUnsigned is Dynamic for numbers without a sign: twice as many in each decade.
var DynamicUnsigned = func() (d [256]float32) {
	values := []float32{0, 1}
	for i := range 7 {
		decade, n := float32(math.Pow(10, float64(i-6))), 2<<i
		for j := range n {
			values = append(values, decade*((linspace(j, n)+linspace(j+1, n))/2))
		}
	}
	slices.Sort(values)
	copy(d[:], values)
	return d
}()

// stretches is how many equal parts of [-1, 1] NearestCodes has.
const stretches = 1 << 16

// NearestCodes are the codes of Dynamic, then of DynamicUnsigned, next to each of 65,536 numbers from -1 to 1: how
// bitsandbytes rounds on a CPU. Numbers nearer to 0 than 1.5e-5 all have the code next to that.
var NearestCodes = sync.OnceValue(func() []uint8 {
	codes := make([]uint8, 0, 2*stretches)
	for _, values := range [][256]float32{Dynamic, DynamicUnsigned} {
		code := 0
		for i := range stretches {
			x := -1 + float32(2*float32(i))/(stretches-1)
			for code < 255 && 0.5*(values[code]+values[code+1]) < x {
				code++
			}
			codes = append(codes, uint8(code))
		}
	}
	return codes
})
