package pickle

import (
	"archive/zip"
	"bytes"
	"io"
	"strings"
	"testing"

	"monotron/internal/parallelio/blocks"
)

// Claim: archive/zip, which checks CRCs, reads every archive of a row of them, each
// where SaveAll says it is; storages begin at multiples of 64 of the file.
func TestSavedArchives(t *testing.T) {
	var values []Value
	for i := range 9 {
		n := int64(1 + 11111*i)
		raw := bytes.Repeat([]byte{byte(i)}, int(n))
		fill := func(dst []byte) error { copy(dst, raw); return nil }
		values = append(values, NewDict(strings.Repeat("k", i), NewTensor("U8", []int64{n}, []blocks.Task{{Bytes: n, Fill: fill}}), "b", Constant("F32", []int64{1}, make([]byte, 4))))
	}
	var out bytes.Buffer
	var sizes []int64
	if err := SaveAll(t.Context(), &out, "archive", values, func(_ int, n int64) { sizes = append(sizes, n) }); err != nil {
		t.Fatal(err)
	}
	at := int64(0)
	for i, size := range sizes {
		section := bytes.NewReader(out.Bytes()[at : at+size])
		z, err := zip.NewReader(section, size)
		if err != nil {
			t.Fatal(i, err)
		}
		for _, m := range z.File {
			if offset, err := m.DataOffset(); err != nil || strings.Contains(m.Name, "/data/") && (at+offset)%alignment != 0 {
				t.Errorf("archive %d: %s at %d, %v", i, m.Name, at+offset, err)
			}
			r, err := m.Open()
			if err == nil {
				_, err = io.Copy(io.Discard, r)
			}
			if err != nil {
				t.Errorf("archive %d: %s: %v", i, m.Name, err)
			}
		}
		if _, err := Read("archive", section, size); err != nil {
			t.Error(err)
		}
		at += size
	}
	if at != int64(out.Len()) {
		t.Errorf("%d bytes, %d are said", out.Len(), at)
	}
}

// Claim: sizes and offsets beyond 4 GB are written as APPNOTE 4.3 has them wide:
// archive/zip reads them back.
func TestWideArchive(t *testing.T) {
	members := []packed{{name: "a/huge", size: 5 << 30, crc: 7}, {name: "a/behind", size: 3, crc: 9}}
	start := layout(members)
	tail := directory(members, start)
	if (start+int64(len(tail)))%alignment != 0 {
		t.Errorf("it ends at %d", start+int64(len(tail)))
	}
	z, err := zip.NewReader(&sparse{at: start, tail: tail}, start+int64(len(tail)))
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range z.File {
		want := &members[i]
		if m.Name != want.name || int64(m.UncompressedSize64) != want.size || m.CRC32 != want.crc {
			t.Errorf("%s: %d bytes, CRC %d", m.Name, m.UncompressedSize64, m.CRC32)
		}
	}
	if head := members[0].describe(); len(head) != 24 || len(members[1].describe()) != 16 {
		t.Errorf("descriptors of %d and %d bytes", len(head), len(members[1].describe()))
	}
}

// sparse is an archive of which only the directory is there.
type sparse struct {
	at   int64
	tail []byte
}

func (s *sparse) ReadAt(b []byte, at int64) (int, error) {
	clear(b)
	n := 0
	for i := range b {
		k := at + int64(i) - s.at
		if k >= int64(len(s.tail)) {
			return n, io.EOF
		}
		if k >= 0 {
			b[i] = s.tail[k]
		}
		n++
	}
	return n, nil
}
