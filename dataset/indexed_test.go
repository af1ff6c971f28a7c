package dataset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// write makes a pair of documents, each a list of sequences.
func write(t testing.TB, prefix string, dtype DType, documents ...[][]int32) {
	t.Helper()
	b, err := NewBuilder(prefix, dtype)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Abort()
	for _, d := range documents {
		var lengths []int32
		for _, s := range d {
			lengths = append(lengths, int32(len(s)))
		}
		if err := b.AddDocument(slices.Concat(d...), lengths); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Finalize(); err != nil {
		t.Fatal(err)
	}
}

// Claim: what is built is read back, for every token type, mapped or not, and
// an empty document is a boundary without a sequence.
func TestBuildAndRead(t *testing.T) {
	documents := [][][]int32{{{1, 2, 3}, {}}, {}, {{4}}, {}}
	for dtype := range dtypes {
		if dtypes[dtype].top < 0 {
			continue
		}
		prefix := filepath.Join(t.TempDir(), "x")
		write(t, prefix, dtype, documents...)
		for _, open := range []func(string) (*Indexed, error){Open, OpenUnmapped} {
			x, err := open(prefix)
			if err != nil {
				t.Fatal(err)
			}
			if x.Len() != 3 || x.Documents() != 4 || x.Tokens() != 4 || x.Longest() != 3 || x.DType() != dtype {
				t.Errorf("%s: %d sequences, %d documents, %d tokens", dtype, x.Len(), x.Documents(), x.Tokens())
			}
			got, err := x.Slice(0, 1, 2, []int32{9})
			if err != nil || !slices.Equal(got, []int32{9, 2, 3}) {
				t.Errorf("%s: %v, %v", dtype, got, err)
			}
			if first, end := x.Document(2); first != 2 || end != 3 {
				t.Errorf("%s: document 2 is %d to %d", dtype, first, end)
			}
			for _, bad := range [][3]int64{{3, 0, 0}, {-1, 0, 0}, {0, 2, 2}, {0, -1, 1}, {0, 1 << 62, 1 << 62}} {
				if _, err := x.Slice(bad[0], bad[1], bad[2], nil); err == nil {
					t.Errorf("%s: %v was read", dtype, bad)
				}
			}
			if err := x.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Claim: an .idx without documents has 42 bytes and opens (what
// Megatron-LM's preprocess_data.py makes of empty input), although an empty .bin cannot be mapped.
func TestEmptyPair(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "x")
	write(t, prefix, U16)
	idx, err := os.ReadFile(prefix + ".idx")
	if err != nil || len(idx) != 42 {
		t.Fatalf("%d bytes, %v", len(idx), err)
	}
	x, err := Open(prefix)
	if err != nil || x.Len() != 0 || x.Documents() != 0 {
		t.Fatalf("%v, %v", x, err)
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// Claim: u16 below 65500 ids, i32 from there on, and an id that does not fit is
// an error (Megatron-LM, indexed_dataset.py, DType).
func TestDType(t *testing.T) {
	if DTypeFor(65499) != U16 || DTypeFor(65500) != I32 {
		t.Error("the cut is at 65500")
	}
	for dtype, ids := range map[DType][]int32{U16: {65535, 65536}, U8: {255, -1}, I16: {-32768, 32768}, I8: {-128, 128}} {
		if _, err := dtype.Append(nil, ids[:1]); err != nil {
			t.Error(err)
		}
		if _, err := dtype.Append(nil, ids); err == nil || !strings.Contains(err.Error(), "token 1") {
			t.Errorf("%s took %v: %v", dtype, ids, err)
		}
	}
}

// Claim: every kind of damage to a pair is one error that names the file and the
// byte, with the exit code for bad data.
func TestDamagedPairs(t *testing.T) {
	le := binary.LittleEndian
	for name, c := range map[string]struct {
		hurt func(idx, bin []byte) ([]byte, []byte)
		says string
	}{
		"empty":            {func(i, b []byte) ([]byte, []byte) { return nil, b }, "byte 0"},
		"cut header":       {func(i, b []byte) ([]byte, []byte) { return i[:20], b }, "byte 20"},
		"magic":            {func(i, b []byte) ([]byte, []byte) { i[3] = 'x'; return i, b }, "byte 0"},
		"old format":       {func(i, b []byte) ([]byte, []byte) { copy(i, "TNTIDX\x00\x00"); return i, b }, "byte 8"},
		"version":          {func(i, b []byte) ([]byte, []byte) { i[9] = 2; return i, b }, "byte 9"},
		"dtype":            {func(i, b []byte) ([]byte, []byte) { i[17] = 9; return i, b }, "byte 17"},
		"float":            {func(i, b []byte) ([]byte, []byte) { i[17] = 7; return i, b }, "byte 17"},
		"huge count":       {func(i, b []byte) ([]byte, []byte) { le.PutUint64(i[18:], 1<<63); return i, b }, "byte 18"},
		"no boundary":      {func(i, b []byte) ([]byte, []byte) { le.PutUint64(i[26:], 0); return i, b }, "byte 18"},
		"cut arrays":       {func(i, b []byte) ([]byte, []byte) { return i[:len(i)-1], b }, "byte 18"},
		"longer index":     {func(i, b []byte) ([]byte, []byte) { return append(i, 0), b }, "byte 18"},
		"negative length":  {func(i, b []byte) ([]byte, []byte) { le.PutUint32(i[38:], 1<<31); return i, b }, "byte 38"},
		"long length":      {func(i, b []byte) ([]byte, []byte) { le.PutUint32(i[38:], 7); return i, b }, "byte 50"},
		"pointer back":     {func(i, b []byte) ([]byte, []byte) { le.PutUint64(i[50:], 2); return i, b }, "byte 50"},
		"negative pointer": {func(i, b []byte) ([]byte, []byte) { le.PutUint64(i[42:], 1<<63); return i, b }, "byte 42"},
		"pointer away":     {func(i, b []byte) ([]byte, []byte) { le.PutUint64(i[50:], 1<<40); return i, b }, "byte 50"},
		"first boundary":   {func(i, b []byte) ([]byte, []byte) { i[58] = 1; return i, b }, "byte 58"},
		"boundary back":    {func(i, b []byte) ([]byte, []byte) { i[66] = 3; return i, b }, "byte 66"},
		"last boundary":    {func(i, b []byte) ([]byte, []byte) { i[74] = 1; return i, b }, "byte 74"},
		"cut bin":          {func(i, b []byte) ([]byte, []byte) { return i, b[:len(b)-1] }, "byte 50"},
		"longer bin":       {func(i, b []byte) ([]byte, []byte) { return i, append(b, 0) }, "x.bin"},
		"no bin at all":    {func(i, b []byte) ([]byte, []byte) { return i, nil }, "x.bin"},
	} {
		prefix := filepath.Join(t.TempDir(), "x")
		write(t, prefix, U16, [][]int32{{1, 2, 3}}, [][]int32{{4, 5}})
		idx, err := os.ReadFile(prefix + ".idx")
		if err != nil {
			t.Fatal(err)
		}
		bin, err := os.ReadFile(prefix + ".bin")
		if err != nil {
			t.Fatal(err)
		}
		idx, bin = c.hurt(idx, bin)
		if err := os.WriteFile(prefix+".idx", idx, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(prefix+".bin", bin, 0o644); err != nil {
			t.Fatal(err)
		}
		x, err := Open(prefix)
		if err == nil || x != nil || exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "x.idx") {
			t.Errorf("%s: %v (exit code %d); want something about %q", name, err, exitcode.CodeOf(err), c.says)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); exitcode.CodeOf(err) != exitcode.NoInput || !strings.Contains(err.Error(), "none.idx") {
		t.Errorf("a missing pair: %v", err)
	}
}

// Claim: merging appends sequences and shifts boundaries, and refuses to mix types.
func TestMerge(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("a"), U16, [][]int32{{1, 2}}, [][]int32{})
	write(t, at("b"), U16, [][]int32{{3}, {4, 5}})
	write(t, at("c"), I32, [][]int32{{3}})
	write(t, at("want"), U16, [][]int32{{1, 2}}, [][]int32{}, [][]int32{{3}, {4, 5}})
	if err := Merge(BuilderConfig{Prefix: at("out")}, []string{at("a"), at("b")}); err != nil {
		t.Fatal(err)
	}
	for _, ext := range []string{".bin", ".idx"} {
		got, _ := os.ReadFile(at("out" + ext))
		want, _ := os.ReadFile(at("want" + ext))
		if !bytes.Equal(got, want) || len(want) == 0 {
			t.Errorf("%s differs: %x, want %x", ext, got, want)
		}
	}
	if err := Merge(BuilderConfig{Prefix: at("mixed")}, []string{at("a"), at("c")}); exitcode.CodeOf(err) != exitcode.BadData {
		t.Errorf("types were mixed: %v", err)
	}
	names, _ := filepath.Glob(at("*mixed*"))
	if hidden, _ := filepath.Glob(at(".*")); len(names)+len(hidden) > 0 {
		t.Errorf("left behind: %q %q", names, hidden)
	}
}

// FuzzIndexed: no index makes Open or the reads it allows fail in another way
// than by an error.
func FuzzIndexed(f *testing.F) {
	prefix := filepath.Join(f.TempDir(), "x")
	write(f, prefix, U16, [][]int32{{1, 2, 3}}, [][]int32{{4, 5}})
	idx, err := os.ReadFile(prefix + ".idx")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(idx)
	f.Add(idx[:40])
	f.Add(append(idx[:26:26], idx[34:34+12*2]...)) // without documents
	f.Add(longs(oldMagic, 1, 8, 2, 2, 2, 3, 0, 1, 2, 0, 3, 5, 3, 2, 0, 1, 2))
	f.Add(longs(oldMagic, 1, 8, 2, 2, 2, 0, 1, 2, 0, 3, 5, 3, 2))
	f.Add(longs(oldMagic, 1, 8, 2, 2, 2)) // ends between the two headers
	f.Fuzz(func(t *testing.T, idx []byte) {
		if err := os.WriteFile(prefix+".idx", idx, 0o644); err != nil {
			t.Fatal(err)
		}
		x, err := Open(prefix)
		if err != nil {
			if exitcode.CodeOf(err) != exitcode.BadData {
				t.Fatal(err)
			}
			return
		}
		for d := int64(0); d < x.Documents(); d++ {
			for i, end := x.Document(d); i < end; i++ {
				if s, err := x.Sequence(i); err != nil && x.DType() != I64 || int64(len(s)) != x.Size(i) && err == nil {
					t.Fatalf("sequence %d: %v, %v", i, s, err)
				}
			}
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// Claim: a file that is cut while it is in use is one error naming it, mapped or
// not: no crash, and no tokens that are not there.
func TestCutWhileInUse(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a mapping shows of a cut file differs between systems")
	}
	for name, unmapped := range map[string]bool{"mapped": false, "read": true} {
		dir := t.TempDir()
		long := make([]int32, 20000)
		write(t, filepath.Join(dir, "d"), U16, [][]int32{long})
		cfg := Config{Dir: dir, DataPath: []string{"d"}, Split: "1", SequenceLength: 100, NoMmapBinFiles: unmapped}
		train, _, _, err := Build(cfg, null(t, 1000), [3]*int64{count(150), nil, nil})
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(dir, "d.bin"), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := train.Sample(3); exitcode.CodeOf(err) != exitcode.IO || !strings.Contains(err.Error(), "d") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Claim: an index, a file without index and cached index arrays that are cut between being
// mapped and being read, as by a disk that fails, are errors of reading (74), not faults;
// a cache is rebuilt.
func TestCutBeforeItIsRead(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a mapping shows of a cut file differs between systems")
	}
	lost := func(what string, err error) {
		t.Helper()
		if exitcode.CodeOf(err) != exitcode.IO || !strings.Contains(err.Error(), "can no longer be read") {
			t.Errorf("%s: %v (code %d)", what, err, exitcode.CodeOf(err))
		}
	}
	dir := t.TempDir()
	prefix := filepath.Join(dir, "d")
	write(t, prefix, U16, [][]int32{make([]int32, 20000)})
	x := &Indexed{prefix: prefix, dtype: U16}
	var err error
	if x.idx, err = openBlob(prefix+".idx", true); err == nil {
		x.bin, err = openBlob(prefix+".bin", true)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if err := errors.Join(os.Truncate(prefix+".idx", 0), os.Truncate(prefix+".bin", 0)); err != nil {
		t.Fatal(err)
	}
	lost("index", x.readIndex(false))
	lost("tokens", x.readTokens(0))
	if _, ok := loadNPY(filepath.Join(dir, "none"), "<i4", 1); ok {
		t.Error("an array that is not there was loaded")
	}
}

// Claim: cached arrays of a dataset and of a blend that are cut while they are in use, and
// an index that is cut before the arrays are built, are errors of reading (74).
func TestCutCacheWhileInUse(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("what a mapping shows of a cut file differs between systems")
	}
	for cut, path := range map[string][]string{"GPTDataset-*_index.npy": {"a"}, "BlendedDataset-*-arrays.bin": {"1", "a", "1", "b"}} {
		dir := t.TempDir()
		for _, name := range []string{"a", "b"} {
			write(t, filepath.Join(dir, name), U16, [][]int32{make([]int32, 20000)})
		}
		cfg := Config{Dir: dir, DataPath: path, Split: "1", SequenceLength: 100, CachePath: filepath.Join(dir, "cache")}
		var train Dataset
		for range 2 { // made, then mapped
			var err error
			if train, _, _, err = Build(cfg, null(t, 1000), [3]*int64{count(150), nil, nil}); err != nil {
				t.Fatal(err)
			}
		}
		files, err := filepath.Glob(filepath.Join(dir, "cache", "*-"+cut))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, f := range files {
			if err := os.Truncate(f, 0); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := train.Sample(3); exitcode.CodeOf(err) != exitcode.IO || !strings.Contains(err.Error(), "can no longer be read") {
			t.Errorf("%s: %v", cut, err)
		}
	}
	g := GPT{shape: shape{sequence: 10, extra: 1}, Name: "GPTDataset", Split: Train, End: 1}
	prefix := filepath.Join(t.TempDir(), "d")
	write(t, prefix, U16, [][]int32{make([]int32, 20000)})
	x, err := Open(prefix)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(prefix+".idx", 0); err != nil {
		t.Fatal(err)
	}
	g.source, g.Prefix = x, prefix
	if _, err := newGPT(g, null(t, 1000), "1", nil); exitcode.CodeOf(err) != exitcode.IO {
		t.Errorf("building: %v", err)
	}
}
