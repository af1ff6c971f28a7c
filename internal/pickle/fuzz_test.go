package pickle

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// seeds are the files of testdata with a suffix.
func seeds(f testing.TB, pattern string) map[string][]byte {
	paths, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(paths) == 0 {
		f.Fatal("no seeds", err)
	}
	files := map[string][]byte{}
	for _, p := range paths {
		if files[p], err = os.ReadFile(p); err != nil {
			f.Fatal(err)
		}
	}
	return files
}

// object is data.pkl of a zip.
func object(t testing.TB, file []byte) []byte {
	z, err := zip.NewReader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return nil
	}
	for _, m := range z.File {
		if strings.HasSuffix(m.Name, "/data.pkl") {
			r, err := m.Open()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			data, _ := io.ReadAll(r) // one file has no checksums
			return data
		}
	}
	return nil
}

// Whatever the pickle: no crash, no endless walk, errors that are bad data; and
// what was read and can be written is read again.
func FuzzPickle(f *testing.F) {
	for _, file := range seeds(f, "*.pt") {
		if data := object(f, file); data != nil {
			f.Add(data)
		}
	}
	for _, text := range []string{"\x80\x02]q\x00(K\x01K\x02e.", "(I1\nI2\nt.", "\x80\x04\x95\x05\x00\x00\x00\x00\x00\x00\x00\x8c\x01a\x94.", "cos\nsystem\n(S'touch pwned-marker'\ntR."} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, n, err := Decode("fuzz", data)
		if err != nil {
			if exitcode.CodeOf(err) != exitcode.BadData {
				t.Fatalf("%v has the code %d", err, exitcode.CodeOf(err))
			}
			return
		}
		if n > len(data) {
			t.Fatalf("read %d of %d bytes", n, len(data))
		}
		Walk(v, func(string, Value) bool { return true })
		if len(data) > 1<<12 {
			return
		}
		text, err := encode(v, 1<<20, nil)
		if err != nil {
			return // contains itself, or is not a value to write
		}
		if _, _, err := Decode("again", text); err != nil {
			t.Fatalf("what was written is refused: %v", err)
		}
	})
}

// Whatever the file, zip or older: no crash, no memory beyond the file's size,
// and no tensor that reads outside its storage.
func FuzzTorchFile(f *testing.F) {
	for _, file := range seeds(f, "*.pt") {
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Read("fuzz", bytes.NewReader(data), int64(len(data)))
		if err != nil {
			if code := exitcode.CodeOf(err); code != exitcode.BadData && code != exitcode.IO {
				t.Fatalf("%v has the code %d", err, code)
			}
			return
		}
		left := int64(64 << 20)
		Walk(file.Root, func(_ string, v Value) bool {
			if x, ok := v.(*Tensor); ok && x.Bytes() <= left {
				left -= x.Bytes()
				_, _ = x.Read() // an error or bytes, no crash
			}
			return true
		})
	})
}

// Nothing that is not on the list is accepted, whatever the way to name it; the
// message says file, byte and class.
func TestNothingRuns(t *testing.T) {
	for name, file := range seeds(t, "malicious-*.pt") {
		_, err := Read(name, bytes.NewReader(file), int64(len(file)))
		if err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "byte ") || !strings.Contains(err.Error(), "nothing was executed") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for text, class := range map[string]string{
		"cos\nsystem\n.":                        "os.system",
		"\x80\x04\x8c\x02os\x8c\x06system\x93.": "os.system",
		"(ios\nsystem\n.":                       "os.system",
		"cbuiltins\neval\n.":                    "builtins.eval",
		"c__builtin__\nexec\n.":                 "__builtin__.exec",
		"csubprocess\nPopen\n.":                 "subprocess.Popen",
		"ctorch\nload\n.":                       "torch.load",
		"cargparse.Namespace\n__class__\n.":     "argparse.Namespace.__class__",
		"c__builtin__\ngetattr\n(cargparse\nNamespace\nS'__init__'\ntR.": "getattr(argparse.Namespace",
	} {
		if _, _, err := Decode("f", []byte(text)); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), class) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, _, err := Decode("f", []byte("\x82\x01.")); err == nil { // EXT1
		t.Error("the extension registry was used")
	}
}

// The limits: each hostile pickle is refused quickly and in little memory.
func TestLimits(t *testing.T) {
	deep := strings.Repeat("]", 60000) + strings.Repeat("a", 59999) + "."
	for name, text := range map[string]string{
		"deep lists":     deep,
		"deep tuples":    ")" + strings.Repeat("\x85", 60000) + ".",
		"marks":          strings.Repeat("(", 5000) + ".",
		"long integer":   "\x8b\x00\x00\x10\x00" + strings.Repeat("\x01", 1<<20) + ".",
		"endless string": "X\xff\xff\xff\xff" + "x.",
		"huge string":    "\x8d\xff\xff\xff\xff\xff\xff\xff\x7f.",
		"empty":          "",
		"no stop":        "N",
		"empty stack":    "a.",
		"below the mark": "N(.",
		"unknown opcode": "\xff.",
		"protocol 9":     "\x80\x09N.",
		"odd dict":       "(NNNd.",
		"missing memo":   "h\x05.",
	} {
		if v, _, err := Decode("f", []byte(text)); exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s: %s, %v", name, TypeName(v), err)
		}
	}
}
