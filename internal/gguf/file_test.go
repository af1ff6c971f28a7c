package gguf

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// example is a file with a value of every kind that is written and a tensor of every type.
func example(t testing.TB) (path string, values []float32) {
	t.Helper()
	values = make([]float32, 3*64)
	for i := range values {
		values[i] = float32(i%17) - 8
	}
	metadata := []Pair{{"general.architecture", "test"}, {"a.text", "words"}, {"a.truth", true}, {"a.count", uint32(7)}, {"a.signed", int32(-7)}, {"a.large", uint64(1 << 40)},
		{"a.real", float32(0.5)}, {"a.texts", []string{"one", "", "three"}}, {"a.signs", []int32{1, -2}}, {"a.reals", []float32{1.5, -2}}, {"a.truths", []bool{true, false}}}
	var tensors []Output
	for _, kind := range []Type{F32, F16, BF16, Q8_0} {
		tensors = append(tensors, Output{Name: "t." + kind.String(), Dims: []int64{64, 3}, Type: kind,
			Fill: func(from, to int64, dst []byte) error { Encode(dst, kind, values[from*64:to*64]); return nil }})
	}
	path = filepath.Join(t.TempDir(), "x.gguf")
	if _, err := Write(context.Background(), path, metadata, tensors); err != nil {
		t.Fatal(err)
	}
	return path, values
}

// Claim: what Write writes, Open reads: metadata and values.
func TestRoundTrip(t *testing.T) {
	path, want := example(t)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	texts, _ := get(f, "a.texts").Strings()
	signs, _ := get(f, "a.signs").Ints()
	reals, _ := get(f, "a.reals").Floats()
	truths, _ := get(f, "a.truths").Bools()
	large, _ := get(f, "a.large").Int()
	signed, _ := get(f, "a.signed").Int()
	if got := fmt.Sprint(texts, signs, reals, truths, large, signed); got != "[one  three] [1 -2] [1.5 -2] [true false] 1099511627776 -7" {
		t.Error(got)
	}
	if _, ok := get(f, "a.none").Int(); ok {
		t.Error("a key that is not there is a number")
	}
	for _, tensor := range f.Tensors {
		for _, part := range [][2]int{{0, 192}, {5, 100}, {31, 33}, {191, 192}} {
			got := make([]float32, part[1]-part[0])
			if err := f.Float32(tensor, got, int64(part[0])); err != nil || tensor.Type != Q8_0 && !slices.Equal(got, want[part[0]:part[1]]) {
				t.Errorf("%s %v: %v", tensor.Name, part, err)
			}
		}
	}
}

func get(f *File, key string) Value {
	v, _ := f.Value(key)
	return v
}

// raw makes a file by hand: a count of tensors and keys, then what follows.
func raw(tensors, keys uint64, rest ...any) []byte {
	out := append([]byte(magic), 3, 0, 0, 0)
	out = le.AppendUint64(le.AppendUint64(out, tensors), keys)
	for _, part := range rest {
		switch part := part.(type) {
		case string:
			out = appendText(out, part)
		case uint32:
			out = le.AppendUint32(out, part)
		case uint64:
			out = le.AppendUint64(out, part)
		}
	}
	return out
}

// withSpace is space behind what is being tested.
func withSpace(b []byte) []byte { return append(b, make([]byte, 4096)...) }

// Claim: each way in which a file can be wrong is one error that says it, with the byte and
// the code of bad data.
func TestBadFiles(t *testing.T) {
	one := func(dims []uint64, kind uint32, offset uint64) []byte {
		parts := []any{"t", uint32(len(dims))}
		for _, d := range dims {
			parts = append(parts, d)
		}
		return withSpace(raw(1, 0, append(parts, kind, offset)...))
	}
	for says, file := range map[string][]byte{
		"too few":                              []byte(magic),
		"begins with":                          withSpace([]byte("GGML\x03\x00\x00\x00")),
		"big-endian":                           withSpace([]byte("GGUF\x00\x00\x00\x03")),
		"version 1":                            withSpace([]byte("GGUF\x01\x00\x00\x00")),
		"tensors; at most":                     withSpace(raw(1<<50, 0)),
		"tensors, which do not fit":            withSpace(raw(1000, 0)),
		"metadata keys; at most":               withSpace(raw(0, 1<<50)),
		"metadata keys, which do not fit into": withSpace(raw(0, 1000)),
		"printable":                            withSpace(raw(0, 1, "a\x00b", uint32(4), uint32(1))),
		"metadata key 0 has 1152921504606846976 bytes; at most ": withSpace(raw(0, 1, uint64(1<<60))),
		"types are 0 to 12":                   withSpace(raw(0, 1, "a", uint32(99))),
		"array of arrays":                     withSpace(raw(0, 1, "a", uint32(9), uint32(9), uint64(1))),
		"too short":                           withSpace(raw(0, 1, "a", uint32(9), uint32(4), uint64(1<<61))),
		"an element of":                       withSpace(raw(0, 1, "a", uint32(9), uint32(8), uint64(2), uint64(1<<40))),
		"occurs twice":                        withSpace(raw(0, 2, "a", uint32(4), uint32(1), "a", uint32(4), uint32(1))),
		"a boolean with the value 2":          withSpace(raw(0, 1, "a", uint32(7), uint32(2))),
		"power of two":                        withSpace(raw(0, 1, alignmentKey, uint32(4), uint32(48))),
		"9 dimensions":                        withSpace(raw(1, 0, "t", uint32(9))),
		"have more than 2^60 elements":        one([]uint64{1 << 32, 1 << 32}, 0, 0),
		"dimension 0 is 0":                    one([]uint64{0}, 0, 0),
		"stored as IQ4_NL":                    one([]uint64{32}, 20, 0),
		"stored as type 77":                   one([]uint64{32}, 77, 0),
		"cannot be divided into blocks of 32": one([]uint64{33}, 8, 0),
		"multiples of the alignment":          one([]uint64{32}, 0, 4),
		"beyond the end":                      one([]uint64{32}, 0, 1<<40),
		"truncated or damaged":                one([]uint64{1 << 20}, 0, 0),
		"overlap":                             withSpace(raw(2, 0, "t", uint32(1), uint64(32), uint32(0), uint64(0), "u", uint32(1), uint64(32), uint32(0), uint64(64))),
		`tensor "t" occurs twice`:             withSpace(raw(2, 0, "t", uint32(1), uint64(32), uint32(0), uint64(0), "t", uint32(1), uint64(32), uint32(0), uint64(128))),
		"has 65 bytes; at most 64":            withSpace(raw(1, 0, strings.Repeat("n", 65))),
	} {
		path := filepath.Join(t.TempDir(), "bad.gguf")
		if err := os.WriteFile(path, file, 0o666); err != nil {
			t.Fatal(err)
		}
		f, err := Open(path)
		if err == nil {
			f.Close()
		}
		if exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), "byte ") {
			t.Errorf("want %q: %v", says, err)
		}
	}
}

// Claim: no mutation of a file makes Open panic, or use more memory than a few times the
// file and its buffer; what opens can be read. The seed is fixed.
func TestMutations(t *testing.T) {
	path, _ := example(t)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(37, 6))
	opened := 0
	for range 1000 {
		bad := slices.Clone(good)
		for range 1 + r.IntN(4) {
			at := r.IntN(min(len(bad)-8, 900))
			switch r.IntN(4) {
			case 0:
				bad[at] = byte(r.IntN(256))
			case 1:
				bad[at] ^= 1 << r.IntN(8)
			case 2:
				le.PutUint64(bad[at:], []uint64{0, 1, 1 << 31, 1 << 62, 1<<64 - 1}[r.IntN(5)])
			case 3:
				bad = bad[:max(at, 16)]
			}
		}
		if err := os.WriteFile(path, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		if read(t, path, len(bad)) {
			opened++
		}
	}
	if opened == 0 || opened == 1000 {
		t.Errorf("%d of 1000 mutations open; the mutations test nothing", opened)
	}
}

// read opens a file and reads all of it.
func read(t *testing.T, path string, size int) bool {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := Open(path)
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > uint64(1<<20+64<<10+16*size) {
		t.Errorf("%d bytes of memory for a file of %d: %v", used, size, err)
	}
	if err != nil {
		if exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%v has the code %d", err, exitcode.CodeOf(err))
		}
		return false
	}
	defer f.Close()
	for _, key := range f.Keys {
		v := get(f, key)
		v.Strings()
		v.Ints()
		v.Floats()
		v.Bools()
		_ = v.Kind()
	}
	for _, tensor := range f.Tensors {
		if err := f.Float32(tensor, make([]float32, tensor.Elements()), 0); err != nil {
			t.Error(err)
		}
	}
	return true
}
