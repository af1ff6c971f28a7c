package mpu_test

import (
	"math"
	"slices"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/mpu"
)

// Claim: initial time steps, softplus of the values, are from a hundredth of Value to Value, uniform by their
// logarithm, and a part has the values of the complete parameter.
func TestTimeStepsStartBetweenTheirLimits(t *testing.T) {
	d := ref.Open()
	defer d.Close()
	const n = 4096
	steps := func(p *mpu.Param) (all []float64) {
		mpu.Allocate(d, []*mpu.Param{p}, device.F32, false)
		p.Initialize(d, 7)
		raw := make([]byte, p.Value.Bytes())
		d.Read(raw, p.Value)
		for _, x := range device.ToFloat64(device.F32, raw) {
			all = append(all, math.Log1p(math.Exp(x)))
		}
		return all
	}
	init := mpu.Init{Kind: mpu.InitTimeStep, Value: 0.1}
	all := steps(mpu.Uncut("dt_bias", init, n))
	if part := steps(mpu.Rows("dt_bias", init, []int64{n}, [][2]int64{{100, 50}}, 50)); !slices.Equal(part, all[100:150]) {
		t.Error("a part differs from the complete parameter")
	}
	slices.Sort(all)
	// Of n uniform numbers the median is within 0.03 of the middle, 4 of its deviations.
	middle := math.Log(all[n/2]/0.001) / math.Log(100)
	if all[0] < 0.001*(1-1e-5) || all[n-1] > 0.1*(1+1e-5) || math.Abs(middle-0.5) > 0.03 {
		t.Errorf("from %g to %g, median at %g of the way", all[0], all[n-1], middle)
	}
}
