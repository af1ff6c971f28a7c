package jsonl

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"

	"monotron/internal/exitcode"
)

const packedText = "{\"text\": \"a\"}\n{\"text\": \"b\"}\n"

// packedBy is text as a writer makes it.
func packedBy(t *testing.T, open func(w io.Writer) (io.WriteCloser, error), text string) string {
	t.Helper()
	var b bytes.Buffer
	w, err := open(&b)
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func packedGzip(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }
func packedZstd(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }
func packedXZ(w io.Writer) (io.WriteCloser, error) {
	return xz.WriterConfig{DictCap: 4096}.NewWriter(w)
}
func packedLZMA(w io.Writer) (io.WriteCloser, error) {
	return lzma.WriterConfig{DictCap: 4096}.NewWriter(w)
}
func sizedLZMA(w io.Writer) (io.WriteCloser, error) {
	return lzma.WriterConfig{DictCap: 4096, Size: int64(len(packedText)), SizeInHeader: true}.NewWriter(w)
}

// readPacked opens content as a file and reads it.
func readPacked(t *testing.T, content string) (string, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path, 1000)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := r.All(1 << 20)
	return string(text), err
}

// Claim: packed text is read as `zstd -dc`, `gzip -dc` and `xz -dc` read it: skippable
// frames of zstd before, between and behind frames (zstd's format, section 3.1.2), zero
// bytes behind gzip data (gzip's manual), several members, xz and lzma.
func TestPacked(t *testing.T) {
	skip := func(n byte) string { return string([]byte{0x50 + n, 0x2a, 0x4d, 0x18, 3, 0, 0, 0}) + "abc" }
	half := len(packedText) / 2
	gz, zst := packedBy(t, packedGzip, packedText), packedBy(t, packedZstd, packedText)
	for name, content := range map[string]string{
		"plain": packedText, "gzip": gz, "zstd": zst, "xz": packedBy(t, packedXZ, packedText), "lzma": packedBy(t, packedLZMA, packedText), "lzma with its size": packedBy(t, sizedLZMA, packedText),
		"gzip, zeros":        gz + strings.Repeat("\x00", 5000),
		"gzip, two, zeros":   packedBy(t, packedGzip, packedText[:half]) + packedBy(t, packedGzip, packedText[half:]) + "\x00",
		"zstd, skip first":   skip(0) + zst,
		"zstd, skips around": skip(15) + skip(3) + packedBy(t, packedZstd, packedText[:half]) + skip(1) + packedBy(t, packedZstd, packedText[half:]) + skip(2),
	} {
		if got, err := readPacked(t, content); err != nil || got != packedText {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// Claim: a packed file that is cut at any byte, or has something behind it, is an error
// and never a shorter text. (A bare gzip cut behind its first members is complete.)
func TestPackedAndCut(t *testing.T) {
	for name, open := range map[string]func(io.Writer) (io.WriteCloser, error){"gzip": packedGzip, "zstd": packedZstd, "xz": packedXZ, "lzma": packedLZMA, "sized lzma": sizedLZMA} {
		content := packedBy(t, open, packedText)
		for n := 13; n < len(content); n++ {
			if got, err := readPacked(t, content[:n]); exitcode.CodeOf(err) != exitcode.BadData {
				t.Errorf("%s of %d bytes cut at %d: %q, %v", name, len(content), n, got, err)
			}
		}
	}
	for _, behind := range []string{"x", "garbage behind it", "\x00\x00x"} {
		if got, err := readPacked(t, packedBy(t, packedGzip, packedText)+behind); exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%q behind gzip: %q, %v", behind, got, err)
		}
	}
}

// Claim: archives and files of other kinds are refused by name, also where they are
// packed themselves; what may be a text is not, whatever its first letters are.
func TestOtherKindsAreRefused(t *testing.T) {
	for content, says := range map[string]string{
		"PAR1\x15\x04\x15\x10" + strings.Repeat("\x00", 90) + "PAR2":      "Parquet",
		"PK\x03\x04\x14\x00\x00\x00\x08\x00" + strings.Repeat("\x00", 90): "zip archive",
		packedBy(t, packedZstd, packedBy(t, packedGzip, packedText)):      "a gzip file, compressed by zstd",
		"7z\xbc\xaf\x27\x1c\x00\x04":                                      "7-Zip",
		"ARROW1\x00\x00\xff\xff\xff\xff":                                  "Arrow",
		"Obj\x01\x04\x14avro.codec":                                       "Avro",
		"\x04\x22\x4d\x18\x64\x40\xa7":                                    "lz4",
		"\x25\xb5\x2f\xfd\x00\x00\x00":                                    "before version 1.0",
		"\xff\xfe{\x00":                                                   "iconv",
	} {
		if _, err := readPacked(t, content); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20q: %v, want %q", content, err, says)
		}
	}
	for _, text := range []string{"PAR1 is a name", "BM", "%PDF is a name", "ARROW1", "]", "MZ", "GIF89a", "caf\xc3\xa9", "", "\xef\xbb\xbf{}"} {
		if got, err := readPacked(t, text); err != nil || got != text {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
