package nf4

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"monotron/internal/safetensors"
)

// Claim: what is written to Packed is read again, bit for bit, in parts of any length, whatever
// it is; weights of NF4 of any type, written at once, take less than 4.6 bits an element, of 16 bits less than 4.4, and
// PackedSize says how much.
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
			limit := 4.6
			if dtype != "F32" {
				limit = 4.4
			}
			if bits := float64(at.Bytes()) * 8 / n; name == "codes" && (bits > limit || at.Bytes() != PackedSize(dtype, n)) {
				t.Errorf("%s: %.2f bits an element, and PackedSize is %d bytes of %d", dtype, bits, PackedSize(dtype, n), at.Bytes())
			}
		}
	}
}

// Claim: pages whose scales are all equal, span the type's range, or are the smallest that it has, are read as they were
// written; of bf16 only the second kind is not kept in codes.
func TestScalesOfAPage(t *testing.T) {
	for _, dtype := range []string{"F32", "BF16", "F16"} {
		for name, scale := range map[string]func(block int) float32{
			"equal": func(int) float32 { return 0.01375 }, "wide": func(k int) float32 { return float32(math.Pow(10, float64(k)/4-3)) }, "small": func(k int) float32 { return 1e-7 * float32(1+k) },
		} {
			x := make([]float32, pageElements)
			for i := range x {
				x[i] = Table[(i*7+i/16)%16] * scale(i/Block)
			}
			raw, _ := safetensors.Encode(nil, dtype, x)
			p, got := newPacked(t, dtype, pageElements), make([]byte, len(raw))
			if err := p.WriteAt(raw, 0); err != nil {
				t.Fatal(err)
			}
			if err := p.ReadAt(got, 0); err != nil || !bytes.Equal(got, raw) {
				t.Errorf("%s, %s scales: other bytes are read, %v", dtype, name, err)
			}
			if coded := p.state[0] == inCodes; dtype == "BF16" && coded != (name != "wide") || dtype == "F32" && !coded {
				t.Errorf("%s, %s scales: in codes: %t", dtype, name, coded)
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
