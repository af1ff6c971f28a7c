package devicetest

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/drawn"
)

// SameBitsAfter runs about one case in n, which SEED picks, after either setting and compares all bytes.
func SameBitsAfter(t *testing.T, dev *device.Device, n uint64, one, other func()) {
	oracle := ref.Open()
	defer oracle.Close()
	eachOf(t, share(Cases(), n, drawn.Seed(1)), func(t *testing.T, c Case) {
		one()
		want := run(t, c, dev, oracle)
		other()
		for i, b := range run(t, c, dev, oracle) {
			if err := b.sameBits(want[i]); err != nil {
				t.Error(err)
			}
		}
	})
}

// sameBits is an error unless b became what other did, bit for bit, but for NaN's.
func (b *buffer) sameBits(other buffer) error {
	if bytes.Equal(b.after, other.after) {
		return nil
	}
	size := int(b.full.DType.Size())
	got, want := b.oneNaN(b.after), b.oneNaN(other.after)
	for at := 0; at < len(got); at += size {
		if x, y := got[at:at+size], want[at:at+size]; !bytes.Equal(x, y) {
			return fmt.Errorf("%s differs: element %d is %v in one result and %v in the other", b.name, at/size, device.ToFloat64(b.full.DType, x), device.ToFloat64(b.full.DType, y))
		}
	}
	return nil
}

// oneNaN is b's elements in raw with the same bytes for every NaN: which sign and payload come out is up
// to the processor.
func (b *buffer) oneNaN(raw []byte) []byte {
	out, size := bytes.Clone(raw), int(b.full.DType.Size())
	for i, x := range device.ToFloat64(b.full.DType, raw) {
		if math.IsNaN(x) {
			copy(out[i*size:], bytes.Repeat([]byte{0xff}, size))
		}
	}
	return out
}

// ListBits writes a line for about one case in n, which SEED picks: op and case, a sum of its inputs, and a sum of
// its results on dev. Lists of two processors can be compared where the inputs are the same.
func ListBits(t *testing.T, dev *device.Device, n uint64, w io.Writer) {
	oracle := ref.Open()
	defer oracle.Close()
	eachOf(t, share(Cases(), n, drawn.Seed(1)), func(t *testing.T, c Case) {
		before, after := sha256.New(), sha256.New()
		for _, b := range run(t, c, dev, oracle) {
			before.Write(b.oneNaN(b.before))
			after.Write(b.oneNaN(b.after))
		}
		if _, err := fmt.Fprintf(w, "%s/%q\t%x\t%x\n", c.Op, c.Name, before.Sum(nil), after.Sum(nil)); err != nil {
			t.Fatal(err)
		}
	})
}
