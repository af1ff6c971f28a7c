package sft

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"monotron/internal/exitcode"
)

// asLines is a file of a JSON array as JSON lines.
func asLines(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	var rows []json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &rows)
	}
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, r := range rows {
		var line bytes.Buffer
		if err := json.Compact(&line, r); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line.String())
	}
	return fileOf(t, lines...)
}

// packed is a file as gzip keeps it.
func packed(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "rows.gz")
	if err := os.WriteFile(to, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return to
}

// Claim: the same rows as JSON lines, as a JSON array, packed, and in pyarrow's Parquet make the same
// documents and pairs.
func TestFormatsOfRows(t *testing.T) {
	_, c, tok, template := opened(t)
	config := Config{Length: 64, Template: template, EOS: c.EOS, Rule: RuleDPO}
	read := map[string]func(path string) (any, error){
		"chat":  func(path string) (any, error) { return Read(path, tok, config) },
		"ids":   func(path string) (any, error) { return Read(path, tok, config) },
		"pairs": func(path string) (any, error) { return ReadPreferences(path, tok, config) },
	}
	for name, rows := range read {
		array := filepath.Join("testdata", name+".json")
		lines := asLines(t, array)
		want, err := rows(lines)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{array, packed(t, array), packed(t, lines), filepath.Join("testdata", name+".parquet")} {
			got, err := rows(path)
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(Preference{}, answered{})); err != nil || diff != "" {
				t.Errorf("%s: %v\n%s", path, err, diff)
			}
		}
	}
}

// Claim: the fields of a Parquet row are in the schema's order, which is that of the rows it was made of.
func TestOrderOfParquet(t *testing.T) {
	s, err := openRows(filepath.Join("testdata", "chat.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	rows, err := s.next()
	if want := `{"messages":[{"role":"user","content":"What is 2 + 3?"},{"role":"assistant","content":"5"}]}`; err != nil || string(rows[0].text) != want || rows[0].number != 1 {
		t.Errorf("%v: row %d: %s, want %s", err, rows[0].number, rows[0].text, want)
	}
}

// Claim: what is wrong in a file without lines names the file, the row and the field.
func TestWrongFiles(t *testing.T) {
	_, c, tok, template := opened(t)
	sound, err := os.ReadFile(filepath.Join("testdata", "chat.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range []struct{ text, says string }{
		{`[{"text": "a"}, {"text": 1}]`, `: row 2: field "text": the value is not a string`},
		{` [ {"text": "a"}, 7 ]`, ": row 2: the row is not an object"},
		{`[{"text": "a"}, {"text": "b"`, ": row 2: the file ends within the array"},
		{`[{"text": "a"} {"text": "b"}]`, ": row 2: "},
		{`[{"text": "a"}] {"text": "b"}`, ": text follows the array of rows;"},
		{`[`, ": row 1: the file ends within the array"},
		{`[]`, " has no rows"},
		{"PAR1 and nothing of Parquet", ":1: the row is not JSON"},
		{string(sound[:len(sound)/2]), ": byte 0: the input is a Parquet file, but must be JSON lines or text in UTF-8; give the Parquet file itself, complete and uncompressed"},
		{"PAR1 and nothing of PAR1", ": the Parquet file is damaged"},
	} {
		path := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := os.WriteFile(path, []byte(w.text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, _, err := Load(path, tok, Config{Length: 8, Template: template, EOS: c.EOS})
		if err == nil || !strings.HasPrefix(err.Error(), path+w.says) || exitcode.CodeOf(err) != exitcode.BadData || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: code %d, %v; want %s", w.text, exitcode.CodeOf(err), err, w.says)
		}
	}
}

// Claim: no damage of a Parquet file does more than end the reading with an error.
func TestDamagedParquet(t *testing.T) {
	_, c, tok, template := opened(t)
	for _, name := range []string{"chat", "ids"} {
		sound, err := os.ReadFile(filepath.Join("testdata", name+".parquet"))
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "rows.parquet")
		for i := 4; i < len(sound); i += 3 {
			damaged := bytes.Clone(sound)
			damaged[i] ^= byte(1 << (i % 8))
			if err := os.WriteFile(path, damaged, 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := Read(path, tok, Config{Length: 16, Template: template, EOS: c.EOS}); err != nil && exitcode.CodeOf(err) != exitcode.BadData {
				t.Errorf("%s, byte %d: code %d, %v", name, i, exitcode.CodeOf(err), err)
			}
		}
	}
}
