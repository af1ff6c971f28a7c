package checkpoint

import (
	"math"
	"testing"

	"monotron/internal/safetensors"
)

// A NaN or infinity of either sign is found at its index, whatever the type and
// the position in a word; the largest finite numbers are not reported.
func TestFirstNonFinite(t *testing.T) {
	largest := map[string]float64{"F64": math.MaxFloat64, "F32": math.MaxFloat32, "BF16": 0x1.fep127, "F16": 65504}
	for dtype, top := range largest {
		for n := range 40 {
			values := make([]float64, n)
			for i := range values {
				values[i] = []float64{top, -top, 0, 1.5}[i%4]
			}
			raw, _ := safetensors.Encode(nil, dtype, values)
			if got := FirstNonFinite(dtype, raw); got != -1 {
				t.Fatalf("%s: element %d of finite ones", dtype, got)
			}
			for at := range values {
				for _, odd := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
					was := values[at]
					values[at] = odd
					raw, _ := safetensors.Encode(nil, dtype, values)
					if got := FirstNonFinite(dtype, raw); got != int64(at) {
						t.Fatalf("%s: %g at %d of %d is found at %d", dtype, odd, at, n, got)
					}
					values[at] = was
				}
			}
		}
	}
}
