package sp

import (
	"os"
	"path/filepath"
	"testing"
	"unicode/utf8"
)

// FuzzModel: any bytes are either refused or make a model that encodes any text
// to ids of its vocabulary.
func FuzzModel(f *testing.F) {
	files, _ := filepath.Glob("../testdata/peers/*.model")
	for _, path := range files {
		data, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, "Hello wörld")
	}
	f.Fuzz(func(t *testing.T, data []byte, text string) {
		m, err := Parse(data)
		if err != nil || !utf8.ValidString(text) || len(text) > 500 {
			return
		}
		ids := m.Append(nil, text)
		for _, id := range ids {
			if id < 0 || int(id) >= m.Size() {
				t.Fatalf("id %d of %d", id, m.Size())
			}
		}
		m.Decode(ids)
	})
}

// Claim: a cut file is refused wherever it is cut inside a piece.
func TestCutFile(t *testing.T) {
	data, err := os.ReadFile("../testdata/peers/sp-bpe.model")
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for n := range len(data) {
		if _, err := Parse(data[:n]); err != nil {
			refused++
		}
	}
	if refused < len(data)/2 {
		t.Errorf("%d of %d cuts were noticed", refused, len(data))
	}
}
