package gguf

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
	"monotron/tokenizer"
)

// Claim: no mutation of a model's file makes reading it panic, take memory without bound or
// return another code than that of bad data: neither its settings, nor its tensors, nor its
// tokenizer. The seed is fixed; the file is llama.cpp's own.
func TestMutatedModels(t *testing.T) {
	good, err := os.ReadFile(golden.Dir(t, "gguf", "llama-bpe", "model.q8_0.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(37, 7))
	rounds := 400
	if testing.Short() {
		rounds = 100
	}
	if opened := openMutations(t, rounds, 64<<20, func() []byte { return mutated(r, good) }); opened == 0 || opened == rounds {
		t.Errorf("%d of %d mutations open; the mutations test nothing", opened, rounds)
	}
}

// openMutations reads so many files, each in at most so many bytes of memory, and counts those that open.
func openMutations(t *testing.T, rounds int, most uint64, mutation func() []byte) (opened int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	for range rounds {
		bad := mutation()
		if err := os.WriteFile(path, bad, 0o666); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if readModel(t, path) {
			opened++
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > most {
			t.Errorf("%d bytes of memory for a file of %d", used, len(bad))
		}
	}
	return opened
}

// mutated changes some bytes of the metadata and of the list of tensors, or cuts the file.
func mutated(r *rand.Rand, good []byte) []byte {
	const described = 11168 // bytes before the data
	bad := slices.Clone(good)
	for range 1 + r.IntN(3) {
		at := r.IntN(described)
		switch r.IntN(5) {
		case 0:
			bad[at] = byte(r.IntN(256))
		case 1:
			bad[at] ^= 1 << r.IntN(8)
		case 2:
			binary.LittleEndian.PutUint32(bad[at:], []uint32{0, 1, 2, 1 << 20, 1<<31 - 1, 1<<32 - 1}[r.IntN(6)])
		case 3:
			binary.LittleEndian.PutUint64(bad[24+r.IntN(900):], r.Uint64()) // settings
		case 4:
			if r.IntN(8) == 0 {
				return bad[:r.IntN(len(bad))]
			}
		}
	}
	return bad
}

// readModel reads everything of a file; false: it was refused.
func readModel(t *testing.T, path string) bool {
	src, err := Open(path, checkpoint.OpenOptions{})
	if err != nil {
		if exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("code %d: %v", exitcode.CodeOf(err), err)
		}
		return false
	}
	defer src.Close()
	for _, tensor := range src.Tensors() {
		box := mpu.Piece{From: make([]int64, len(tensor.Shape)), Size: tensor.Shape}
		if err := src.Read(tensor.Name, box, make([]byte, tensor.Bytes())); err != nil {
			t.Errorf("%s: %v", tensor.Name, err)
		}
	}
	if config := src.Info().Tokenizer; !config.IsZero() {
		if tok, err := tokenizer.FromConfig(config); err == nil {
			_, err = tok.Encode("Some text, 12 words.\n\n<|im_start|>user")
			if err != nil {
				t.Error(err)
			}
		}
	}
	_, _, _ = Modelfile(path) // whatever it says, it does not panic
	return true
}
