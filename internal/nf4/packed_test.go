package nf4

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"monotron/internal/safetensors"
)

// Claim: what is written to Packed is read again, bit for bit, in parts of any length, whatever
// it is; weights of NF4 of any type, written at once, take less than 4.6 bits an element.
func TestPackedKeepsBits(t *testing.T) {
	const n = 20 * pageElements
	for _, dtype := range []string{"F32", "BF16", "F16"} {
		r := rand.New(rand.NewPCG(1, 2))
		x, wide := make([]float32, n), make([]float32, n)
		for i := range x {
			x[i] = float32(r.NormFloat64()) * 0.02
		}
		copy(x[5*Block:], make([]float32, Block)) // zeros
		q := Quantize(x, true)
		q.Dequantize(wide, 0)
		coded, _ := safetensors.Encode(nil, dtype, wide)
		other, _ := safetensors.Encode(nil, dtype, x)
		for name, raw := range map[string][]byte{"codes": coded, "others": other, "both": append(bytes.Clone(coded[:len(coded)/2]), other[len(other)/2:]...)} {
			p := newPacked(t, dtype, n)
			for at := 0; at < len(raw); {
				k := min(len(raw)-at, 1+r.IntN(9000))
				if err := p.WriteAt(raw[at:at+k], int64(at)); err != nil {
					t.Fatal(err)
				}
				at += k
			}
			got := make([]byte, len(raw))
			for at := 0; at < len(got); {
				k := min(len(got)-at, 1+r.IntN(9000))
				if err := p.ReadAt(got[at:at+k], int64(at)); err != nil {
					t.Fatal(err)
				}
				at += k
			}
			full := make([]byte, len(raw))
			if err := p.ReadAt(full, 0); err != nil || !bytes.Equal(got, raw) || !bytes.Equal(full, raw) {
				t.Errorf("%s of %s: other bytes are read, %v", name, dtype, err)
			}
			at := newPacked(t, dtype, n)
			if err := at.WriteAt(raw, 0); err != nil {
				t.Fatal(err)
			}
			if bits := float64(at.Bytes()) * 8 / n; name == "codes" && bits > 4.6 {
				t.Errorf("%s: %.2f bits an element", dtype, bits)
			}
		}
	}
}

func newPacked(t *testing.T, dtype string, n int64) *Packed {
	t.Helper()
	p, err := NewPacked(dtype, n, func(bytes int64) ([]byte, error) { return make([]byte, bytes), nil })
	if err != nil {
		t.Fatal(err)
	}
	return p
}
