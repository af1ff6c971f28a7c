package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
)

// raw makes a file of a header as it stands and some data.
func raw(header string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), make([]byte, data)...)
}

func write(t testing.TB, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.safetensors")
	if err := os.WriteFile(path, content, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// Each rule of the format (safetensors README, "Format") broken once: one
// BadData error that names the file and what is wrong.
func TestRefusesBrokenHeaders(t *testing.T) {
	const a, b = `"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`, `"b":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}`
	for name, c := range map[string]struct {
		file []byte
		says string
	}{
		"empty":          {nil, "too few"},
		"header length":  {binary.LittleEndian.AppendUint64(nil, 1<<20), "the header size is 1048576 bytes"},
		"huge length":    {binary.LittleEndian.AppendUint64(nil, 1<<63), "the header size is"},
		"not json":       {raw(`{a`, 0), "not JSON"},
		"not an object":  {raw(`[1]`, 0), "does not start with {"},
		"leading space":  {raw(` {}`, 0), "does not start with {"},
		"not utf-8":      {raw("{\"\xff\":1}", 0), "not UTF-8"},
		"cut":            {raw(`{`+a, 8), "not JSON"},
		"trailing":       {raw(`{`+a+`}x`, 8), "only spaces may follow"},
		"duplicate":      {raw(`{`+a+`,`+a+`}`, 8), `"a" twice`},
		"escaped twin":   {raw(`{`+a+`,"\u0061":{}}`, 8), `"a" twice`},
		"field twice":    {raw(`{"a":{"dtype":"F32","dtype":"F32"}}`, 8), `"dtype" twice`},
		"unknown field":  {raw(`{"a":{"stride":[1]}}`, 8), `unknown field "stride"`},
		"deep":           {raw(`{"a":`+strings.Repeat("[", 1<<20), 0), "expected {"},
		"missing field":  {raw(`{"a":{"dtype":"F32","shape":[2]}}`, 8), "needs dtype"},
		"one offset":     {raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}}`, 8), "needs dtype"},
		"three offsets":  {raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}}`, 8), "more than 2"},
		"dtype":          {raw(`{"a":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}}`, 8), `"F31"`},
		"negative":       {raw(`{"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8), "an integer from 0"},
		"fraction":       {raw(`{"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}`, 8), "an integer from 0"},
		"string shape":   {raw(`{"a":{"dtype":"F32","shape":["2"],"data_offsets":[0,8]}}`, 8), "an integer from 0"},
		"overflow":       {raw(`{"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]}}`, 8), "is too large"},
		"byte overflow":  {raw(`{"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,8]}}`, 8), "is too large"},
		"half a byte":    {raw(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}`, 1), "not a multiple of 8 bits"},
		"not in order":   {raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, 8), "not in order"},
		"past the end":   {raw(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 7), "end beyond"},
		"size mismatch":  {raw(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}`, 8), "needs 12 bytes"},
		"overlap":        {raw(`{`+a+`,"b":{"dtype":"U8","shape":[3],"data_offsets":[7,10]}}`, 10), `"a" and "b" overlap`},
		"hole":           {raw(`{`+a+`,"b":{"dtype":"U8","shape":[3],"data_offsets":[9,12]}}`, 12), `before tensor "b"`},
		"tail":           {raw(`{`+a+`,`+b+`}`, 12), "at the end"},
		"metadata value": {raw(`{"__metadata__":{"format":1}}`, 0), "expected a string"},
	} {
		path := write(t, c.file)
		_, err := Open(path)
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), path) || exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s: %v (exit %d), want it to name the file and %q", name, err, exitcode.CodeOf(err), c.says)
		}
	}
}

// The format allows scalars, empty tensors, no tensors, padding by spaces, any order.
func TestReadsLegalOddities(t *testing.T) {
	header := `{"b":{"dtype":"U8","shape":[3],"data_offsets":[4,7]},"none":{"dtype":"F64","shape":[0,5],"data_offsets":[4,4]},` +
		`"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}   `
	f, err := Open(write(t, raw(header, 7)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := f.Float32("a"); err != nil || len(got) != 1 || got[0] != 0 {
		t.Errorf("scalar: %v, %v", got, err)
	}
	if got, err := f.Float64("none"); err != nil || len(got) != 0 {
		t.Errorf("empty: %v, %v", got, err)
	}
	if got, err := f.Int64("b"); err != nil || len(got) != 3 {
		t.Errorf("bytes: %v, %v", got, err)
	}
	if _, err := f.Int64("a"); err == nil {
		t.Error("floats read as integers")
	}
	if g, err := Open(write(t, raw(`{}`, 0))); err != nil || len(g.Names()) != 0 {
		t.Errorf("no tensors: %v", err)
	}
}

// What Create writes, Open reads: names with odd characters, metadata, bytes;
// data aligned; nothing under the final name before Commit or after Abort.
func TestWriterRoundTrip(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m.safetensors")
	infos := []Info{{Name: "w \"ü\n", DType: "F32", Shape: []int64{2, 3}}, {Name: "s", DType: "I64"}, {Name: "b", DType: "BF16", Shape: []int64{3}}}
	var data []byte
	for i := range 2*3*4 + 8 + 6 {
		data = append(data, byte(i*7))
	}
	w, err := Create(path, infos, map[string]string{"format": "pt"})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range data {
		if _, err := w.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file has its name before Commit")
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var got []byte
	for _, info := range infos {
		part, err := f.Read(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, part...)
	}
	if !bytes.Equal(got, data) || f.Metadata["format"] != "pt" || f.HeaderBytes%dataAlign != 0 {
		t.Errorf("read %v, metadata %v, data at %d", got, f.Metadata, f.HeaderBytes)
	}
	short, err := Create(filepath.Join(dir, "short.safetensors"), infos, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := short.Commit(); err == nil {
		t.Error("a file without its data was committed")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// Files that torch and the safetensors library wrote, every dtype there is; the
// values of pickle/ are listed in its case.json.
func TestReadsGoldenFiles(t *testing.T) {
	root := golden.Dir(t)
	files, err := filepath.Glob(filepath.Join(root, "*", "*", "*.safetensors"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	files = append(files, filepath.Join(root, "checkpoint", "pickle", "expected.safetensors"))
	for _, path := range files {
		f, err := Open(path)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, name := range f.Names() {
			info, _ := f.Info(name)
			values, err := f.Float64(name)
			if err != nil || int64(len(values)) != info.Len() {
				t.Errorf("%s %s: %d values, %v", path, name, len(values), err)
			}
		}
		_ = f.Close()
	}
}

// golden/checkpoint/bad: files that the real readers refuse (its README).
func TestRefusesGoldenBadFiles(t *testing.T) {
	root := golden.Dir(t, "checkpoint", "bad")
	seen := 0
	for _, pattern := range []string{"st-*", "index-*", "good-hf", "good-sharded"} {
		dirs, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range dirs {
			if filepath.Base(dir) == "st-nan-weights" {
				continue // a sound file; whoever converts it judges the values
			}
			seen++
			checkGoldenBad(t, dir)
		}
	}
	if seen < 12 {
		t.Errorf("only %d cases", seen)
	}
}

func checkGoldenBad(t *testing.T, dir string) {
	var c struct {
		Must string   `json:"must"`
		Says []string `json:"message_contains"`
	}
	text, err := os.ReadFile(filepath.Join(dir, "case.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	f, err := OpenFolder(dir)
	if err == nil {
		_ = f.Close()
	}
	if (err != nil) != (c.Must == "refuse") {
		t.Errorf("%s: %v, must %s", dir, err, c.Must)
	}
	for _, says := range c.Says {
		if err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %q does not say %q", dir, err, says)
		}
	}
}

// Whatever the header, reading it neither panics nor yields a tensor outside the file.
func FuzzSafetensorsHeader(f *testing.F) {
	f.Add([]byte(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`), uint16(8))
	f.Add([]byte(`{"__metadata__":{"format":"pt"},"b":{"dtype":"F4","shape":[0],"data_offsets":[0,0]}}  `), uint16(0))
	f.Add([]byte(`{"a":{"dtype":"F64","shape":[1152921504606846976,16],"data_offsets":[0,0]}}`), uint16(0))
	f.Fuzz(func(t *testing.T, header []byte, data uint16) {
		infos, _, err := parse("fuzz", header, int64(data))
		if err != nil {
			if exitcode.CodeOf(err) != exitcode.BadData {
				t.Fatalf("exit code %d: %v", exitcode.CodeOf(err), err)
			}
			return
		}
		total, start := int64(0), int64(lengthBytes+len(header))
		for _, info := range infos {
			total += info.Bytes
			if info.Bytes < 0 || info.Offset < start || info.Offset+info.Bytes > start+int64(data) {
				t.Fatalf("%v lies outside the file", info)
			}
		}
		if total != int64(data) {
			t.Fatalf("tensors hold %d of %d bytes", total, data)
		}
	})
}

// Claim: a folder with model.safetensors and an index of other files is refused, since it may hold two models; an index
// may name model.safetensors itself.
func TestRefusesTwoModelsInAFolder(t *testing.T) {
	for shard, refused := range map[string]bool{"model-00001-of-00001.safetensors": true, SingleName: false} {
		dir := t.TempDir()
		const header = `{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`
		for name, content := range map[string][]byte{shard: raw(header, 4), SingleName: raw(header, 4), IndexName: []byte(`{"weight_map": {"a": "` + shard + `"}}`)} {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		d, err := OpenFolder(dir)
		if err == nil {
			err = d.Close()
		}
		if refused != (err != nil) || refused && (exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "has both")) {
			t.Errorf("%s: %v", shard, err)
		}
	}
}
