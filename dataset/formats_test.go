package dataset

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// longs is a magic and 64-bit words.
func longs(magic string, words ...int64) []byte {
	out := []byte(magic)
	for _, w := range words {
		out = binary.LittleEndian.AppendUint64(out, uint64(w))
	}
	return out
}

// Claim: TNTIDX is read as fairseq's and Megatron's indexed_dataset.py lay it out: with
// boundaries, and as in the very first files without them and tokens one higher;
// damage is an error that names a byte.
func TestReadOldIndex(t *testing.T) {
	dir := t.TempDir()
	prefix := filepath.Join(dir, "x")
	put := func(idx []byte, tokens ...uint16) (*Indexed, error) {
		var bin []byte
		for _, v := range tokens {
			bin = binary.LittleEndian.AppendUint16(bin, v)
		}
		for name, data := range map[string][]byte{".bin": bin, ".idx": idx} {
			if err := os.WriteFile(prefix+name, data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return Open(prefix)
	}
	words := []int64{1, 8, 2, 2, 2, 3, 0, 1, 2, 0, 3, 5, 3, 2, 0, 2, 2} // an empty document last
	x, err := put(longs(oldMagic, words...), 10, 11, 12, 13, 14)
	if err != nil {
		t.Fatal(err)
	}
	second, err := x.Sequence(1)
	if x.Documents() != 2 || x.Len() != 2 || !slices.Equal(second, []int32{13, 14}) || err != nil {
		t.Errorf("%d documents, %v, %v", x.Documents(), second, err)
	}
	first, err := put(longs(oldMagic, 1, 8, 2, 2, 2, 0, 1, 2, 0, 3, 5, 3, 2), 11, 12, 13, 14, 15)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := first.Sequence(0); first.Documents() != 2 || !slices.Equal(ids, []int32{10, 11, 12}) || err != nil {
		t.Errorf("without boundaries: %d documents, %v, %v", first.Documents(), ids, err)
	}
	for at, value := range map[int]int64{0: 2, 1: 6, 2: 4, 3: 1 << 60, 5: 4, 7: 7, 10: 9, 12: -3, 13: 1 << 40, 15: 5} {
		bad := slices.Clone(words)
		bad[at] = value
		if _, err := put(longs(oldMagic, bad...), 10, 11, 12, 13, 14); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "byte ") {
			t.Errorf("word %d = %d: %v", at, value, err)
		}
	}
}

// Claim: the .bin of a pair is not read as a file of tokens without index.
func TestHalfOfAPair(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "x")
	write(t, prefix, I32, [][]int32{{1, 2, 3}})
	if _, err := Open(prefix + ".bin"); exitcode.CodeOf(err) != exitcode.Usage || !strings.HasSuffix(err.Error(), "give the common prefix of these two files, "+prefix) {
		t.Error(err)
	}
	if err := os.Remove(prefix + ".idx"); err != nil {
		t.Fatal(err)
	}
	if x, err := Open(prefix + ".bin"); err != nil || x.DType() != U16 {
		t.Error(err)
	}
}

// Claim: the first MMIDIDX files, which count no documents, are read.
func TestReadFirstIndex(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "x")
	write(t, prefix, U16, [][]int32{{1, 2, 3}}, [][]int32{{4, 5}})
	idx, err := os.ReadFile(prefix + ".idx")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(prefix+".idx", append(idx[:26:26], idx[34:34+12*2]...), 0o644); err != nil {
		t.Fatal(err)
	}
	x, err := Open(prefix)
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := x.Sequence(1); x.Documents() != 2 || !slices.Equal(ids, []int32{4, 5}) || err != nil {
		t.Errorf("%d documents, %v, %v", x.Documents(), ids, err)
	}
}

// Claim: tokens beyond 4 GiB are found: offsets have 64 bits. (The file is a
// hole but for its end.)
func TestOffsetsBeyond32Bits(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "x")
	const long = 1<<31 - 1 // tokens, the longest a sequence can be
	bin, err := os.Create(prefix + ".bin")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bin.WriteAt([]byte{7, 0, 8, 0}, 4*int64(long)); err != nil {
		t.Skip("the file system has no files of 8 GB: ", err)
	}
	if err := bin.Close(); err != nil {
		t.Fatal(err)
	}
	idx := append([]byte(idxMagic), make([]byte, headerBytes-len(idxMagic))...)
	binary.LittleEndian.PutUint64(idx[9:], 1)
	idx[17] = byte(U16)
	binary.LittleEndian.PutUint64(idx[18:], 3)
	binary.LittleEndian.PutUint64(idx[26:], 2)
	for _, n := range []uint32{long, long, 2} {
		idx = binary.LittleEndian.AppendUint32(idx, n)
	}
	idx = append(idx, longs("", 0, 2*long, 4*long, 0, 3)...)
	if err := os.WriteFile(prefix+".idx", idx, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, open := range []func(string) (*Indexed, error){Open, OpenUnmapped} {
		x, err := open(prefix)
		if err != nil {
			t.Fatal(err)
		}
		if ids, err := x.Sequence(2); err != nil || !slices.Equal(ids, []int32{7, 8}) || x.Tokens() != 2*long+2 {
			t.Errorf("%v, %v, %d tokens", ids, err, x.Tokens())
		}
		if err := x.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// Claim: modes of multimodal pairs are merged, and only when they are expected.
func TestMergeModes(t *testing.T) {
	dir := t.TempDir()
	a, b, out := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "out")
	for i, prefix := range []string{a, b} {
		write(t, prefix, U16, [][]int32{{1}, {2}})
		f, err := os.OpenFile(prefix+".idx", os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.Write([]byte{byte(i), 5})
		if err != nil || f.Close() != nil {
			t.Fatal(err)
		}
	}
	if err := Merge(BuilderConfig{Prefix: out}, []string{a, b}); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "--multimodal") {
		t.Errorf("without --multimodal: %v", err)
	}
	if err := Merge(BuilderConfig{Prefix: out, Multimodal: true}, []string{a, b}); err != nil {
		t.Fatal(err)
	}
	if idx, err := os.ReadFile(out + ".idx"); err != nil || !slices.Equal(idx[len(idx)-4:], []byte{0, 5, 1, 5}) || len(idx) != headerBytes+13*4+8*3 {
		t.Errorf("%v, %v", idx, err)
	}
}

// Claim: training refuses data that was made with another tokenizer, in one line
// that names the file; a pair without a sidecar is fine.
func TestSidecar(t *testing.T) {
	dir := t.TempDir()
	prefix := worked(t, dir)
	build := func(vocab, eod int) error {
		tok, err := tokenizer.NewNull(vocab, eod, tokenizer.NoPad)
		if err != nil {
			t.Fatal(err)
		}
		_, _, _, err = Build(Config{Dir: dir, DataPath: []string{"d1"}, Split: "1", SequenceLength: 4, Seed: 1}, tok, [3]*int64{})
		return err
	}
	if err := build(1000, -1); err != nil {
		t.Fatal(err)
	}
	x, err := Open(prefix)
	if err != nil {
		t.Fatal(err)
	}
	b := &Builder{BuilderConfig: BuilderConfig{DType: U16}, done: Mark{Documents: x.Documents(), Sequences: x.Len(), Tokens: x.Tokens()}}
	if err := NewSidecar(null(t, 1000), tokenizer.Config{}, b, false, 0).Write(prefix); err != nil {
		t.Fatal(err)
	}
	if err := build(1000, -1); err != nil {
		t.Errorf("its own tokenizer: %v", err)
	}
	for name, err := range map[string]error{"vocabulary size": build(999, -1), "end-of-document id": build(1000, 3)} {
		if exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "d1.json: "+name) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
	}
	write(t, prefix, U16, [][]int32{{1, 2, 3}})
	if err := build(1000, -1); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "documents, sequences and tokens") {
		t.Errorf("other data under the name: %v", err)
	}
}

// Claim: data replaced under the same path is noticed also where only the middle
// of it changed, with as many documents and tokens as before.
func TestReplacedMiddle(t *testing.T) {
	dir := t.TempDir()
	var docs [][][]int32
	for range 5000 {
		docs = append(docs, [][]int32{make([]int32, 8)})
	}
	write(t, filepath.Join(dir, "d"), U16, docs...)
	build := func() (string, string) {
		said := ""
		cfg := Config{Dir: dir, DataPath: []string{"d"}, Split: "1", SequenceLength: 4, Seed: 1, Notice: func(text string) { said += text }}
		train, _, _, err := Build(cfg, null(t, 1000), [3]*int64{})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(values(train.(*GPT).SampleIndex)), said
	}
	before, _ := build()
	docs[2500], docs[2501] = [][]int32{make([]int32, 5)}, [][]int32{make([]int32, 11)}
	write(t, filepath.Join(dir, "d"), U16, docs...)
	after, said := build()
	if after == before || !strings.Contains(said, "rebuilt") {
		t.Errorf("not noticed; said %q", said)
	}
}
