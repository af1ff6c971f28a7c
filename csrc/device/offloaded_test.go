package device_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
)

// memory is a store in a slice; reads of more than it has fail.
type memory struct{ b []byte }

func (m *memory) ReadAt(dst []byte, at int64) error {
	if at+int64(len(dst)) > int64(len(m.b)) {
		return io.ErrUnexpectedEOF
	}
	copy(dst, m.b[at:])
	return nil
}

func (m *memory) WriteAt(src []byte, at int64) error {
	copy(m.b[at:], src)
	return nil
}

// Claim: FetchBox reads the rows and columns of a matrix in a store that it is asked for, whatever they are, and returns
// the store's error.
func TestFetchBox(t *testing.T) {
	d := ref.Open()
	defer d.Close()
	const rows, columns, skip = 300, 190, 77
	r := rand.New(rand.NewPCG(1, 2))
	var m memory
	at := d.Offloaded(device.F32, skip+rows*columns, func(n int64) (device.Store, error) {
		m.b = make([]byte, n)
		for i := range m.b {
			m.b[i] = byte(r.Uint32())
		}
		return &m, nil
	}).Slice(0, skip, rows*columns).Reshape(rows, columns)
	for _, box := range [][2][2]int64{{{0, rows}, {0, columns}}, {{17, 200}, {0, columns}}, {{0, rows}, {64, 64}}, {{299, 1}, {189, 1}}, {{5, 0}, {0, columns}}} {
		y, x := box[0], box[1]
		dst := d.Arena.Alloc(device.Parameters, device.F32, y[1], x[1])
		if err := d.FetchBox(dst, at, y, x); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, dst.Bytes())
		d.Read(got, dst)
		var want []byte
		for i := range y[1] {
			want = append(want, m.b[4*(skip+(y[0]+i)*columns+x[0]):][:4*x[1]]...)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("rows %v and columns %v: other bytes than the store's", y, x)
		}
		d.Arena.Free(dst)
	}
	m.b = m.b[:4*(skip+10*columns)]
	if err := d.FetchBox(d.Arena.Alloc(device.Parameters, device.F32, rows, columns), at, [2]int64{0, rows}, [2]int64{0, columns}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a store that cannot be read: %v", err)
	}
}
