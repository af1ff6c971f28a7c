package pickle

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"hash/crc32"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// archive is a file of torch.save with one tensor of n f32 elements, whose record
// is raw, stored or deflated, and is said to unpack to size bytes.
func archive(t *testing.T, n int64, raw []byte, deflated bool, size uint64) []byte {
	t.Helper()
	object, err := encode(Constant("F32", []int64{n}, nil), maxPickle, func(*Storage) (string, error) { return "0", nil })
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	add := func(h *zip.FileHeader, raw []byte) {
		w, err := z.CreateRaw(h)
		if err == nil {
			_, err = w.Write(raw)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	header := func(name string, raw, packed []byte, size uint64) *zip.FileHeader {
		return &zip.FileHeader{Name: "archive/" + name, CRC32: crc32.ChecksumIEEE(raw), CompressedSize64: uint64(len(packed)), UncompressedSize64: size}
	}
	for _, m := range []struct{ name, text string }{{"data.pkl", string(object)}, {"version", "3\n"}} {
		add(header(m.name, []byte(m.text), []byte(m.text), uint64(len(m.text))), []byte(m.text))
	}
	packed := raw
	if deflated {
		var b bytes.Buffer
		w, err := flate.NewWriter(&b, flate.BestSpeed)
		if err == nil {
			_, err = w.Write(raw)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		packed = b.Bytes()
	}
	h := header("data/0", raw, packed, size)
	if deflated {
		h.Method = zip.Deflate
	}
	add(h, packed)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Records that are longer or shorter than the pickle says, that claim to unpack to
// more than deflate can give, or more than may be in memory, are refused before memory is
// taken; a modest compressed one is read.
func TestRecords(t *testing.T) {
	for name, c := range map[string]struct {
		elements int64
		raw      []byte
		deflated bool
		size     uint64
		says     string
	}{
		"stored":      {4, make([]byte, 16), false, 16, ""},
		"deflated":    {4096, make([]byte, 16384), true, 16384, ""},
		"longer":      {4, make([]byte, 20), false, 20, "data/0 has 20 bytes"},
		"shorter":     {4, make([]byte, 12), false, 12, "data/0 has 12 bytes"},
		"beyond":      {1 << 28, make([]byte, 1000), true, 1 << 30, "cannot expand"},
		"too much":    {36 << 20, make([]byte, 144<<20), true, 144 << 20, "without compression"},
		"ends early":  {4096, make([]byte, 16000), true, 16384, "of 16384 bytes: unexpected EOF"},
		"goes on":     {4096, make([]byte, 16400), true, 16384, "decompressing the member stopped after 16384 of 16384"},
		"2^62 stored": {1 << 60, make([]byte, 16), false, 1 << 62, "two different sizes"},
	} {
		raw := archive(t, c.elements, c.raw, c.deflated, c.size)
		f, err := Read("file.pt", bytes.NewReader(raw), int64(len(raw)))
		if err == nil {
			err = f.Root.(*Tensor).ReadAt(make([]byte, 16), 0)
		}
		if c.says == "" && err == nil {
			continue
		}
		if err == nil || c.says == "" || !strings.Contains(err.Error(), c.says) || exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s: %v, want it to say %q", name, err, c.says)
		}
	}
}
