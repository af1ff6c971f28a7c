package records

import (
	"archive/tar"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

func longest() int64 { return 1 << 20 }

// read is a file of testdata (its README says which program wrote it).
func read(t *testing.T, name string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// objects are the rows of a stream; each is one line.
func objects(from io.Reader) (rows []map[string]any, err error) {
	text, err := io.ReadAll(from)
	for line := range strings.Lines(string(text)) {
		d, row := json.NewDecoder(strings.NewReader(line)), map[string]any{}
		d.UseNumber()
		if err := d.Decode(&row); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		rows = append(rows, row)
	}
	return rows, err
}

// Claim: NaN and infinities of a Parquet file are null, since a column that nobody asks for must not end the reading;
// pyarrow's file without rows has none.
func TestParquetWithoutNumbers(t *testing.T) {
	type row struct {
		Text  string
		Score float64
		Small []float32
	}
	var file bytes.Buffer
	if err := parquet.Write(&file, []row{{"a", math.NaN(), []float32{float32(math.Inf(-1)), 1.5}}, {"b", 2, nil}}); err != nil {
		t.Fatal(err)
	}
	for want, content := range map[string][]byte{
		"": read(t, "empty.parquet"),
		`{"Text":"a","Score":null,"Small":[null,1.5]}` + "\n" + `{"Text":"b","Score":2,"Small":[]}` + "\n": file.Bytes(),
	} {
		p, err := OpenParquet(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(p.Lines()); err != nil || string(got) != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Claim: rows that the webdataset, pyarrow and streaming packages have written are read with the values that were written.
func TestPeersFiles(t *testing.T) {
	var want []map[string]any
	d := json.NewDecoder(bytes.NewReader(read(t, "rows.json")))
	d.UseNumber()
	if err := d.Decode(&want); err != nil {
		t.Fatal(err)
	}
	parquet := read(t, "rows.parquet")
	if !IsParquet(bytes.NewReader(parquet), int64(len(parquet))) || !IsTar(read(t, "samples.tar")) || IsTar(parquet) {
		t.Fatal("a file is not known for what it is")
	}
	p, err := OpenParquet(bytes.NewReader(parquet), int64(len(parquet)))
	if err != nil {
		t.Fatal(err)
	}
	p.Binary = true
	for _, c := range []struct {
		name   string
		stream io.Reader
		fields map[string]string // of want, by the name that the row has for it
	}{
		{"Parquet", p.Lines(), map[string]string{"text": "text", "n": "n"}},
		{"WebDataset", Tar(bytes.NewReader(read(t, "samples.tar")), longest), map[string]string{"text": "text", "txt": "text", "n": "n", "cls": "n", "meta": "meta"}},
		{"MDS", MDS(bytes.NewReader(read(t, "shard.mds")), longest), map[string]string{"text": "text", "n": "n", "meta": "meta"}},
	} {
		rows, err := objects(c.stream)
		if err != nil || len(rows) != len(want) {
			t.Fatalf("%s: %d rows of %d: %v", c.name, len(rows), len(want), err)
		}
		for i, row := range rows {
			for field, of := range c.fields {
				if !reflect.DeepEqual(row[field], want[i][of]) {
					t.Errorf("%s: row %d: %s is %v, written was %v", c.name, i, field, row[field], want[i][of])
				}
			}
			written, _ := want[i]["x"].(json.Number).Float64()
			if x, err := row["x"].(json.Number).Float64(); err != nil || x != written {
				t.Errorf("%s: row %d: x is %v, written was %v", c.name, i, row["x"], want[i]["x"])
			}
			if _, there := row["raw"]; there {
				t.Errorf("%s: row %d has its bytes", c.name, i)
			}
			if c.name == "MDS" && (row["small"] != json.Number("-5") || row["digits"] != json.Number("12345678901234567890")) {
				t.Errorf("MDS: row %d: small %v, digits %v", i, row["small"], row["digits"])
			}
		}
	}
}

// packed is an archive of members.
func packed(t *testing.T, members ...[2]string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range members {
		if err := w.WriteHeader(&tar.Header{Name: m[0], Mode: 0o644, Size: int64(len(m[1]))}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m[1])); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// Claim: members make rows as WebDataset groups them; members of JSON lines are rows; the rest is left out.
func TestMembers(t *testing.T) {
	rows, err := objects(Tar(packed(t, [2]string{"README", "none"}, [2]string{"__meta__.txt", "none"}, [2]string{"d.1/a.b.txt", "x"}, [2]string{"d.1/a.jpg", "\xff"},
		[2]string{"d.1/a.json", " {\n \"n\": 1,\r\n \"b.txt\": 0 } \n"}, [2]string{"b.JSON", "[1,\n2]"}, [2]string{"c.jsonl", "{\"q\": 1}\n\n{\"q\": 2}"}, [2]string{"e.json", "{}"}), longest))
	want := `[map[__key__:d.1/a b.txt:x n:1] map[__key__:b json:[1 2]] map[q:1] map[q:2] map[__key__:e]]`
	if got := fmt.Sprint(rows); err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
	for says, m := range map[string][][2]string{
		`member "a.txt": the text is not UTF-8`:                       {{"a.txt", "\xff"}},
		`member "a.cls": "one" is not a number`:                       {{"a.cls", "one"}},
		`member "a.TXT": the sample "a" has two members of this name`: {{"a.txt", "x"}, {"a.TXT", "y"}},
		`member "a.txt": the value is longer than --max-line-bytes`:   {{"a.txt", strings.Repeat("x", 1<<20+1)}},
		`the value is longer than --max-line-bytes allows`:            {{"a.jsonl", strings.Repeat("x", 1<<20+1)}},
	} {
		if _, err := objects(Tar(packed(t, m...), longest)); err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// Claim: damage ends the reading with an error or changes values; it never makes the reader panic, take memory that the file
// does not have, or give more rows. A file that is cut gives an error.
func TestDamage(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 0))
	for name, open := range map[string]func([]byte) io.Reader{
		"samples.tar": func(b []byte) io.Reader { return Tar(bytes.NewReader(b), longest) },
		"shard.mds":   func(b []byte) io.Reader { return MDS(bytes.NewReader(b), longest) },
	} {
		sound := read(t, name)
		for n := range 2000 {
			damaged := bytes.Clone(sound)
			for range 1 + r.IntN(3) {
				damaged[r.IntN(len(damaged))] ^= 1 << r.IntN(8)
			}
			if rows, _ := io.ReadAll(open(damaged)); bytes.Count(rows, []byte("\n")) > 9 {
				t.Fatalf("%s, damage %d: %d rows", name, n, bytes.Count(rows, []byte("\n")))
			}
		}
		for _, n := range []int{1, 5, 100, len(sound) / 3, len(sound) / 2} {
			if _, err := io.ReadAll(open(sound[:n])); err == nil {
				t.Errorf("%s cut at byte %d is read without an error", name, n)
			}
		}
	}
	huge := binary.LittleEndian.AppendUint32(nil, 1<<32-1)
	if _, err := io.ReadAll(MDS(bytes.NewReader(huge), longest)); err == nil || !strings.Contains(err.Error(), "4294967295 samples") {
		t.Errorf("a shard that says it has 4 billion samples: %v", err)
	}
}
