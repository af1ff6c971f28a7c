package hf

import (
	"math/rand/v2"
	"testing"
)

// Elements of every width arrive at their index, in complete tiles and at edges,
// with any strides; nothing outside the result is written.
func TestTranspose(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, width := range []int64{2, 4, 8} {
		for i := range 200 {
			rows, columns := r.Int64N(70), r.Int64N(300)
			srcStride, dstStride := columns+r.Int64N(5), rows+r.Int64N(5)
			if i%4 == 0 { // lines of the result are lines of memory
				dstStride = (rows + 31) / 32 * 32
			}
			src := make([]byte, (rows*srcStride+1)*width)
			for i := range src {
				src[i] = byte(r.Uint32())
			}
			dst := make([]byte, (columns*dstStride+1)*width)
			transpose(dst, dstStride, src, srcStride, rows, columns, width)
			want := make([]byte, len(dst))
			for i := range rows {
				for j := range columns {
					copy(want[(j*dstStride+i)*width:][:width], src[(i*srcStride+j)*width:])
				}
			}
			if string(want) != string(dst) {
				t.Fatalf("%d x %d elements of %d bytes, strides %d to %d: wrong", rows, columns, width, srcStride, dstStride)
			}
		}
	}
}

func BenchmarkTranspose(b *testing.B) {
	const rows, columns = 64, 3072 // of 768 x 3072, as conversions of GPT-2 read them
	for _, width := range []int64{2, 4} {
		b.Run(map[int64]string{2: "16 bits", 4: "32 bits"}[width], func(b *testing.B) {
			src, dst := make([]byte, rows*columns*width), make([]byte, 768*columns*width)
			b.SetBytes(rows * columns * width)
			for i := range b.N {
				transpose(dst[int64(i%12)*rows*width:], 768, src, columns, rows, columns, width)
			}
		})
	}
}
