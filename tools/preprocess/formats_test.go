package preprocess

import (
	"bytes"
	"encoding/binary"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"monotron/dataset"
	"monotron/internal/exitcode"
)

const small = `{"text": "one two three"}
{"text": ""}
{"text": "four"}
`

func mustCall(t *testing.T, words ...string) string {
	t.Helper()
	said, err := call(words...)
	if err != nil {
		t.Fatalf("%v: %v", words, err)
	}
	return said
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Claim: packed input gives the bytes of plain input, whatever its name; packed
// input that breaks off is an error that names the file, and leaves nothing.
func TestPackedInput(t *testing.T) {
	t.Chdir(t.TempDir())
	text := lines(3000)
	writeFile(t, "plain.jsonl", text)
	var gz, zst, xzs bytes.Buffer
	g := gzip.NewWriter(&gz)
	z, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	x, err := xz.NewWriter(&xzs)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []interface {
		Write([]byte) (int, error)
		Close() error
	}{g, z, x} {
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	flags := []string{"--tokenizer-type", "GPT2BPETokenizer", "--output-prefix"}
	mustCall(t, append([]string{"preprocess_data", "--input", "plain.jsonl"}, append(flags, "plain")...)...)
	want := hash(t, "plain_text_document.bin")
	for name, data := range map[string][]byte{"a.jsonl.gz": gz.Bytes(), "b.jsonl.zst": zst.Bytes(), "c.jsonl.xz": xzs.Bytes(), "d": gz.Bytes()} {
		writeFile(t, name, data)
		mustCall(t, append([]string{"preprocess_data", "--input", name}, append(flags, "o")...)...)
		if hash(t, "o_text_document.bin") != want {
			t.Errorf("%s: other bytes", name)
		}
		writeFile(t, name, data[:len(data)/2])
		_, err := call(append([]string{"preprocess_data", "--input", name}, append(flags, "cut")...)...)
		if exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), name) {
			t.Errorf("half of %s: %v", name, err)
		}
		if left, _ := os.ReadDir("."); slices.ContainsFunc(left, func(f os.DirEntry) bool { return strings.Contains(f.Name(), "cut") }) {
			t.Errorf("half of %s: left behind: %v", name, left)
		}
	}
}

// Claim: bad lines are left out, named with file:line and counted; the rest is
// as if they had not been there, for every key.
func TestSkipBadLines(t *testing.T) {
	t.Chdir(t.TempDir())
	good := "{\"a\": \"x y\", \"b\": \"z\"}\n"
	bad := []string{"", "{", `{"a": "x"}`, `{"a": "x", "b": null}`, `{"a": "x", "b": "\ud800"}`, "{\"a\": \"\xff\", \"b\": \"\"}", `{"a": "x", "b": ["y", 1]}`}
	writeFile(t, "bad.jsonl", []byte(good+strings.Join(bad, "\n")+"\n"+good))
	writeFile(t, "good.jsonl", []byte(good+good))
	flags := []string{"--json-keys", "a", "b", "a", "--tokenizer-type", "GPT2BPETokenizer", "--append-eod", "--output-prefix"}
	said := mustCall(t, append([]string{"preprocess_data", "--input", "bad.jsonl", "--on-bad-line", "skip"}, append(flags, "s")...)...)
	mustCall(t, append([]string{"preprocess_data", "--input", "good.jsonl"}, append(flags, "g")...)...)
	for _, key := range []string{"a", "b"} {
		for _, ext := range []string{".bin", ".idx"} {
			if hash(t, "s_"+key+"_document"+ext) != hash(t, "g_"+key+"_document"+ext) {
				t.Errorf("%s%s: other bytes", key, ext)
			}
		}
	}
	for n := range bad {
		if want := "bad.jsonl:" + string(rune('2'+n)) + ":"; !strings.Contains(said, want) {
			t.Errorf("%s is not named", want)
		}
	}
	if !strings.Contains(said, "left out 7 lines") {
		t.Errorf("not counted: %s", said)
	}
	if s, ok, err := dataset.ReadSidecar("s_a_document"); !ok || err != nil || s.BadLines != 7 || s.Documents != 2 {
		t.Errorf("sidecar %+v, %v", s, err)
	}
}

// Claim: a line longer than --max-line-bytes is one error with file:line.
func TestLongLine(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "x.jsonl", []byte(small+`{"text": "`+strings.Repeat("a", 1200<<10)+`"}`+"\n"+small))
	words := []string{"preprocess_data", "--input", "x.jsonl", "--output-prefix", "x", "--tokenizer-type", "GPT2BPETokenizer", "--max-line-bytes"}
	if _, err := call(append(words, "1048576")...); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "x.jsonl:4:") {
		t.Errorf("%v", err)
	}
	mustCall(t, append(words, "2097152")...)
	// Also one that is short, among others, at the end and without its end.
	for text, line := range map[string]string{small + small + `{"text": "` + strings.Repeat("a", 40) + `"}` + "\r\n" + small: "x.jsonl:7:", small + `{"text": "` + strings.Repeat("a", 40) + `"}`: "x.jsonl:4:"} {
		writeFile(t, "x.jsonl", []byte(text))
		if _, err := call(append(words, "51")...); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), line+" the line is longer than 51 bytes") {
			t.Errorf("%v", err)
		}
		mustCall(t, append(words, "52")...)
	}
}

// Claim: a key that a line lacks is an error that names the keys of the line and the flag.
func TestMissingKey(t *testing.T) {
	t.Chdir(t.TempDir())
	for line, says := range map[string]string{
		`{"Inhalt": "Hallo", "id": 1}`: `the key "text" is missing; --json-keys names the keys to read, and the line has the keys "Inhalt", "id"; `,
		`{"a": NaN}`:                   `the key "text" is missing; --json-keys names the keys to read; `,
		`{}`:                           `the key "text" is missing; --json-keys names the keys to read; `,
	} {
		writeFile(t, "x.jsonl", []byte(line+"\n"))
		_, err := call("preprocess_data", "--input", "x.jsonl", "--output-prefix", "x", "--tokenizer-type", "GPT2BPETokenizer")
		if exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// sequences are all token lists of a file.
func sequences(t *testing.T, path string) (all [][]int32) {
	t.Helper()
	x, err := openTokens(path, 50256)
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	for i := range x.Len() {
		ids, err := x.Sequence(i)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, ids)
	}
	return all
}

// Claim: --dataset-impl lazy and cached write the layout of TNTIDX (fairseq,
// indexed_dataset.py), 32-bit tokens, and it is read back.
func TestOldPair(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "x.jsonl", []byte(small))
	mustCall(t, "preprocess_data", "--input", "x.jsonl", "--output-prefix", "x", "--tokenizer-type", "GPT2BPETokenizer", "--append-eod", "--dataset-impl", "lazy")
	idx, err := os.ReadFile("x_text_document.idx")
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	want.WriteString("TNTIDX\x00\x00")
	// version, dtype i32, its size, items, sizes, boundaries; dim_offsets, data_offsets, sizes, boundaries
	for _, v := range []int64{1, 4, 4, 2, 2, 4, 0, 1, 2, 0, 4, 6, 4, 2, 0, 1, 1, 2} {
		want.Write(binary.LittleEndian.AppendUint64(nil, uint64(v)))
	}
	if !bytes.Equal(idx, want.Bytes()) {
		t.Errorf("%v, want %v", idx, want.Bytes())
	}
	if got := sequences(t, "x_text_document"); len(got) != 2 || !slices.Equal(got[0], []int32{505, 734, 1115, 50256}) && got[0][3] != 50256 {
		t.Errorf("%v", got)
	}
}

// Claim: llm.c's files (both magics) and nanoGPT's have the layout of their own
// scripts, and go back and forth without a change of tokens.
func TestOtherTokenFiles(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "x.jsonl", []byte(small))
	gpt2 := []string{"--tokenizer-type", "GPT2BPETokenizer", "--append-eod"}
	null := []string{"--tokenizer-type", "NullTokenizer", "--vocab-size", "128256", "--null-tokenizer-eod-id", "128000", "--append-eod"}
	mustCall(t, append([]string{"preprocess_data", "--input", "x.jsonl", "--output-prefix", "l", "--output-format", "llmc"}, gpt2...)...)
	mustCall(t, append([]string{"preprocess_data", "--input", "x.jsonl", "--output-prefix", "n", "--output-format", "nanogpt"}, gpt2...)...)
	writeFile(t, "y.jsonl", []byte("{\"text\": \"7 70000\"}\n{\"text\": \"8\"}\n"))
	mustCall(t, append([]string{"preprocess_data", "--input", "y.jsonl", "--output-prefix", "m", "--output-format", "llmc"}, null...)...)
	for name, want := range map[string]struct{ magic, version, tokens, bytes uint32 }{"l": {20240520, 1, 6, 1024 + 12}, "m": {20240801, 7, 5, 1024 + 20}} {
		data, err := os.ReadFile(name + "_text_document.bin")
		if err != nil || len(data) != int(want.bytes) {
			t.Fatalf("%s: %d bytes, %v", name, len(data), err)
		}
		word := func(i int) uint32 { return binary.LittleEndian.Uint32(data[4*i:]) }
		if word(0) != want.magic || word(1) != want.version || word(2) != want.tokens || word(255) != 0 {
			t.Errorf("%s: header %d %d %d", name, word(0), word(1), word(2))
		}
	}
	if got := sequences(t, "m_text_document.bin"); len(got) != 3 || !slices.Equal(slices.Concat(got...), []int32{128000, 7, 70000, 128000, 8}) {
		t.Errorf("llm.c, 32 bits: %v", got)
	}
	for _, name := range []string{"l", "m", "n"} {
		format := map[string]string{"l": "llmc", "m": "llmc", "n": "nanogpt"}[name]
		tok := []string{"--tokenizer-type", "GPT2BPETokenizer"}
		mustCall(t, append([]string{"preprocess_data", "--input-format", "tokens", "--input", name + "_text_document.bin", "--output-prefix", name + "2"}, tok[:2*b2i(name == "n")]...)...)
		mustCall(t, "preprocess_data", "--input-format", "tokens", "--input", name+"2_text_document", "--output-prefix", name+"3", "--output-format", format)
		if hash(t, name+"_text_document.bin") != hash(t, name+"3_text_document.bin") {
			t.Errorf("%s: there and back gives other bytes", name)
		}
	}
	if got, want := sequences(t, "n2_text_document"), sequences(t, "n_text_document.bin"); len(got) != 2 || len(want) != 2 || got[0][len(got[0])-1] != 50256 {
		t.Errorf("nanoGPT: %v, %v", got, want)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Claim: a dry run writes nothing and says what would be.
func TestDryRun(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "x.jsonl", []byte(small))
	said := mustCall(t, "preprocess_data", "--input", "x.jsonl", "--output-prefix", "x", "--tokenizer-type", "GPT2BPETokenizer", "--dry-run")
	if left, _ := os.ReadDir("."); len(left) != 1 || !strings.Contains(said, "3 documents") || !strings.Contains(said, "x_text_document.bin (new)") {
		t.Errorf("%v, %s", left, said)
	}
}

// Claim: the search for the number of workers ranks them, and as in Megatron the
// output holds the first --max-documents documents of each partition.
func TestFindOptimalNumWorkers(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "x.jsonl", lines(100))
	said := mustCall(t, "preprocess_data", "--input", "x.jsonl", "--output-prefix", "x", "--tokenizer-type", "GPT2BPETokenizer", "--workers", "1",
		"--find-optimal-num-workers", "--workers-to-check", "2", "3", "4", "--max-documents", "10", "--partitions", "2")
	if x, err := dataset.Open("x_text_document"); err != nil || x.Documents() != 20 {
		t.Errorf("%v, %v", x, err)
	}
	for _, want := range []string{"Removing num_workers (3)", "Performance results", "The most optimal num of workers is"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is not said: %s", want, said)
		}
	}
}

// Claim: a pair is found by its prefix where a folder of that name, such as the
// one that holds the cache of its index arrays, lies next to it.
func TestPrefixNextToFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "in.jsonl", []byte(small))
	mustCall(t, "preprocess_data", "--input", "in.jsonl", "--output-prefix", "a", "--tokenizer-type", "GPT2BPETokenizer", "--append-eod")
	if err := os.MkdirAll("a_text_document/cache/GPTDataset_indices", 0o755); err != nil {
		t.Fatal(err)
	}
	mustCall(t, "preprocess_data", "--input", "a_text_document", "--input-format", "tokens", "--output-prefix", "b", "--tokenizer-type", "GPT2BPETokenizer")
	for _, ext := range []string{".bin", ".idx"} {
		if hash(t, "a_text_document"+ext) != hash(t, "b_text_document"+ext) {
			t.Errorf("%s differs", ext)
		}
	}
}
