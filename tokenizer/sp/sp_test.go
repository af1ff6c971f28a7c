package sp

import (
	"crypto/md5"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
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
	for model := range byte(3) { // small ones, in which a changed byte goes far
		f.Add(tiny(model), "aab bba<x>é\n")
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

// tiny is a model of few pieces: model 1 a unigram model, else BPE; 2 has bytes.
func tiny(model byte) []byte {
	field := func(dst []byte, num protowire.Number, body []byte) []byte {
		return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), body)
	}
	number := func(dst []byte, num protowire.Number, v uint64) []byte {
		return protowire.AppendVarint(protowire.AppendTag(dst, num, protowire.VarintType), v)
	}
	var file []byte
	add := func(text string, score float32, k kind) {
		p := field(nil, 1, []byte(text))
		p = protowire.AppendFixed32(protowire.AppendTag(p, 2, protowire.Fixed32Type), math.Float32bits(score))
		file = field(file, 1, number(p, 3, uint64(k)))
	}
	add("<unk>", 0, unknown)
	add("<s>", 0, control)
	add("</s>", 0, control)
	add("<x>", 0, userDefined)
	for i, text := range []string{"\u2581", "a", "b", "aa", "ab", "\u2581b", "aab", "\u2581bb"} {
		add(text, -float32(i), normal)
	}
	if model == 2 {
		for b := range 256 {
			add(fmt.Sprintf("<0x%02X>", b), 0, byteKind)
		}
	}
	trainer := number(nil, 3, 2)
	if model == 1 {
		trainer = number(nil, 3, 1)
	}
	file = field(file, 2, number(trainer, 35, uint64(model/2)))
	return field(file, 3, number(number(nil, 3, 1), 4, uint64(model&1)))
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

// Claim: a text whose sums of scores go beyond farScore, so that they are moved
// back several times, gets the ids of sentencepiece 0.2.3, which made the sum below.
func TestFarScores(t *testing.T) {
	m, err := Load("../testdata/peers/sp-unigram-identity.model")
	if err != nil {
		t.Fatal(err)
	}
	words := strings.Fields("return errors tokens the string another 1999 777 internal seconds interest presented understanding ttttt eeeee")
	var text strings.Builder
	x := uint64(1)
	for range 20000 {
		x = (x*1103515245 + 12345) & 0x7fffffff
		text.WriteString(words[(x>>16)%uint64(len(words))])
	}
	var raw []byte
	ids := m.Append(nil, text.String())
	for _, id := range ids {
		raw = binary.LittleEndian.AppendUint32(raw, uint32(id))
	}
	if sum := fmt.Sprintf("%x", md5.Sum(raw)); len(ids) != 82386 || sum != "c2a77196b304d83c2fc6a1f04a4b23a8" {
		t.Errorf("%d ids, MD5 %s", len(ids), sum)
	}
}
