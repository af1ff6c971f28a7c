package tokenizer

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/pkoukk/tiktoken-go-loader/assets"

	"monotron/tokenizer/bpe"
)

var update = flag.Bool("update", false, "write gpt2.merges anew")

// Claim: gpt2.merges is GPT-2's vocabulary as tiktoken publishes it (r50k_base). That
// lists each token's bytes in the order the tokens were made, so a merge is found by
// encoding the token with the merges before it: two parts are left.
func TestEmbeddedMerges(t *testing.T) {
	data, err := assets.Assets.ReadFile("r50k_base.tiktoken")
	if err != nil {
		t.Fatal(err)
	}
	var singles, pairs []byte
	var ids [256]int32
	merges, next := bpe.NewMerges(60000), int32(0)
	for line := range bytes.Lines(data) {
		spelled, _, _ := strings.Cut(string(line), " ")
		token, err := base64.StdEncoding.DecodeString(spelled)
		if err != nil {
			t.Fatal(err)
		}
		if next++; len(token) == 1 {
			ids[token[0]], singles = next-1, append(singles, token[0])
			continue
		}
		parts := make([]bpe.Part, len(token))
		for i, b := range token {
			parts[i].ID = ids[b]
		}
		two := merges.Merge(nil, parts)
		if len(two) != 2 {
			t.Fatalf("token %d, %q, has %d parts", next-1, token, len(two))
		}
		merges.Add(two[0], two[1], int32(merges.Len()), next-1)
		pairs = binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(pairs, uint16(two[0])), uint16(two[1]))
	}
	want := append(singles, pairs...)
	if *update {
		if err := os.WriteFile("gpt2.merges", want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(gpt2Merges, want) && !*update {
		t.Errorf("gpt2.merges, %d bytes, is not what the ranks give, %d bytes", len(gpt2Merges), len(want))
	}
}
