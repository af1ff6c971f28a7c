package all

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/spec"
	"monotron/mpu"
	"monotron/tokenizer"
)

// named is a model of one small layer whose run had a tokenizer.
type named struct {
	checkpoint.Source
	tokenizer tokenizer.Config
}

func (n named) Info() checkpoint.Info {
	info := n.Source.Info()
	info.Tokenizer = n.tokenizer
	return info
}

func tiny(t *testing.T, c tokenizer.Config) checkpoint.Source {
	t.Helper()
	m := &spec.Model{NumLayers: 1, HiddenSize: 8, FFNHiddenSize: 32, NumAttentionHeads: 2, NumQueryGroups: 2, KVChannels: 4, VocabSize: 16, PaddedVocabSize: 16,
		MaxPositions: 8, Context: 8, Position: spec.PositionLearned, Normalization: "LayerNorm", NormEpsilon: 1e-5, LinearBias: true, QKVBias: true, Tied: true, WindowLeft: -1, Activation: spec.GeluTanh, InitStd: 0.02}
	sizes := map[string]int64{}
	for _, have := range checkpoint.Expected(m) {
		sizes[have.Name] = mpu.Piece{Size: have.Shape}.Len()
	}
	return named{hf.Values(m, hf.GPT2, func(name string) ([]float32, error) {
		if sizes[name] == 0 {
			return nil, fmt.Errorf("no tensor %s", name)
		}
		return make([]float32, sizes[name]), nil
	}), c}
}

// Claim: whatever format a run saves, the tokenizer is found in the checkpoint after the
// original is gone and the checkpoint has moved, and it is the same one; on the
// way through another format too.
func TestCheckpointsKeepTheirTokenizer(t *testing.T) {
	all := []checkpoint.Format{checkpoint.Native, checkpoint.MegatronTorch, checkpoint.MegatronTorchDist, checkpoint.HF}
	for _, f := range all {
		for _, via := range all {
			t.Run(string(f)+" "+string(via), func(t *testing.T) {
				from, made := t.TempDir(), t.TempDir()
				vocab, merges := filepath.Join(from, "my-vocab.json"), filepath.Join(from, "my-merges.txt")
				builtIn, err := tokenizer.Config{Type: "GPT2BPETokenizer"}.Files(true)
				if err != nil {
					t.Fatal(err)
				}
				for i, path := range []string{vocab, merges} {
					if err := os.WriteFile(path, builtIn[i].Data, 0o666); err != nil {
						t.Fatal(err)
					}
				}
				src := tiny(t, tokenizer.Config{Type: "GPT2BPETokenizer", VocabFile: vocab, MergeFile: merges})
				last := filepath.Join(made, "first")
				for i, format := range []checkpoint.Format{f, via} {
					out := filepath.Join(made, fmt.Sprint("out", i))
					if _, err := Write(context.Background(), format, out, src, checkpoint.WriteOptions{}); err != nil {
						t.Fatal(err)
					}
					_ = os.Remove(vocab) // the run's own files are gone
					last = filepath.Join(made, fmt.Sprint("moved", i))
					if err := os.Rename(out, last); err != nil {
						t.Fatal(err)
					}
					src = open(t, last)
				}
				c := src.Info().Tokenizer
				if !strings.HasPrefix(c.VocabFile, last) && !strings.HasPrefix(c.Model, last) {
					t.Fatalf("%+v lies outside of %s", c, last)
				}
				tok, err := tokenizer.FromConfig(c)
				if err != nil {
					t.Fatal(err)
				}
				if ids, err := tok.Encode("Hello world"); err != nil || !slices.Equal(ids, []int32{15496, 995}) {
					t.Errorf("%v, %v", ids, err)
				}
			})
		}
	}
}

// Claim: files that are missing or too large are a note, and asked for they are not kept;
// the checkpoint is written all the same.
func TestTokenizersThatAreNotKept(t *testing.T) {
	for _, f := range []checkpoint.Format{checkpoint.Native, checkpoint.MegatronTorch, checkpoint.MegatronTorchDist, checkpoint.HF} {
		src := tiny(t, tokenizer.Config{Type: "Llama2Tokenizer", Model: "/nowhere/tokenizer.model"})
		out := filepath.Join(t.TempDir(), "out")
		done, err := Write(context.Background(), f, out, src, checkpoint.WriteOptions{})
		if err != nil || !strings.Contains(strings.Join(done.Notes, "\n"), "does not contain a copy of its tokenizer: /nowhere/tokenizer.model does not exist") {
			t.Errorf("%s: %v, %q", f, err, done.Notes)
		}
		if f == checkpoint.HF {
			continue
		}
		done, err = Write(context.Background(), f, out+"2", tiny(t, tokenizer.Config{Type: "GPT2BPETokenizer"}), checkpoint.WriteOptions{NoTokenizerFiles: true})
		if _, kept := os.Stat(filepath.Join(done.Path, tokenizer.KeptFolder)); err != nil || kept == nil {
			t.Errorf("%s: %v, files are kept", f, err)
		}
		if c := open(t, out+"2").Info().Tokenizer; c.Type != "GPT2BPETokenizer" {
			t.Errorf("%s names %+v", f, c)
		}
	}
}
