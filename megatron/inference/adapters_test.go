package inference

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/all"
	"monotron/megatron/checkpoint/peft"
)

// mergeCases are the folders of golden/merge, with the distance in log-probability that rounding the
// merged weights makes.
func mergeCases(t *testing.T) map[string]float64 {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join(golden.Dir(t, "merge"), "*", "case.json"))
	cases := map[string]float64{}
	for _, file := range files {
		var c struct {
			Type string `json:"base_dtype"`
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = json.Unmarshal(text, &c)
		}
		if err != nil {
			t.Fatal(err)
		}
		if cases[filepath.Dir(file)] = 0.02; c.Type == "float32" {
			cases[filepath.Dir(file)] = 1e-4
		}
	}
	if len(cases) < 6 {
		t.Fatalf("only %d cases", len(cases))
	}
	return cases
}

// opened is the model of a folder on a device of its own.
func opened(t *testing.T, dir string) *Loaded {
	t.Helper()
	d := ref.Open()
	t.Cleanup(func() { d.Close() })
	l, err := Load(d, dir, LoadOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// asks are requests of several lengths that share a beginning longer than a block, for an adapter.
func asks(vocab, adapter int) (list []*Request) {
	for n := range 3 {
		q := &Request{MaxNew: 4, LogProbs: 2, PromptLogProbs: n == 1, Adapter: adapter}
		for i := range 20 + 3*n {
			q.Prompt = append(q.Prompt, int32((7*i+3)%vocab))
		}
		list = append(list, q)
	}
	return list
}

// answersOf runs requests together.
func answersOf(t *testing.T, e editions, requests []*Request) (list []answer) {
	t.Helper()
	b := newBatcher(e, BatcherConfig{Blocks: 40, Sequences: 8, Tokens: 24, Queue: 40}, e.list[0].orders(), "")
	streams := submit(t, b, requests...)
	b.Drain()
	if err := b.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range streams {
		list = append(list, gather(t, s))
	}
	return list
}

// Claim (golden/merge, PEFT 0.21): served with a base, an adapter's answers are those of the model that PEFT
// merged it into, to rounding; the base's, and each adapter's, are bit for bit what they are alone, also
// where their texts run at once and begin alike.
func TestAdaptersWithTheBase(t *testing.T) {
	for dir, most := range mergeCases(t) {
		name := filepath.Base(dir)
		l := opened(t, filepath.Join(dir, "base"))
		plain := answersOf(t, editions{list: []*Loaded{l, nil}}, asks(l.Vocab, 0))
		e, err := l.editionsOf([]Adapter{{"a", filepath.Join(dir, "adapter")}, {"b", filepath.Join(dir, "adapter")}})
		if err != nil {
			t.Fatal(err)
		}
		merged := opened(t, filepath.Join(dir, "merged"))
		want := answersOf(t, editions{list: []*Loaded{merged, nil}}, asks(l.Vocab, 0))
		var all []*Request
		for i := range 3 {
			for adapter := range 3 {
				all = append(all, asks(l.Vocab, adapter)[i])
			}
		}
		moved := 0.0
		for i, got := range answersOf(t, e, all) {
			switch adapter, n := i%3, i/3; adapter {
			case 0:
				if !reflect.DeepEqual(got, plain[n]) {
					t.Errorf("%s: the base answers %+v, alone %+v", name, got, plain[n])
				}
			default:
				moved = max(moved, math.Abs(got.Tokens[0].LogProb-plain[n].Tokens[0].LogProb))
				for k := range got.Tokens {
					a, b := got.Tokens[k], want[n].Tokens[k]
					if math.Abs(a.LogProb-b.LogProb) > most {
						t.Errorf("%s, adapter %d: token %d is %v, of the merged model %v", name, adapter, k, a.Choice, b.Choice)
					}
					if a.ID != b.ID { // as likely, to rounding
						break
					}
				}
			}
		}
		if moved < 1e-3 {
			t.Errorf("%s: the adapter moves log-probabilities by %g alone", name, moved)
		}
		if again := answersOf(t, e, asks(l.Vocab, 0)); !reflect.DeepEqual(again, plain) {
			t.Errorf("%s: the base has changed", name)
		}
	}
}

// Claim (adapters of PEFT 0.21, tools/verify/modelcase): so are adapters on embeddings and output layers, and with
// weights that were trained in full.
func TestAdapterPartsWithTheBase(t *testing.T) {
	for name, model := range map[string]string{"llama-tables": "llama", "llama-saved": "llama", "qwen2-bias": "qwen2"} {
		base := t.TempDir()
		for to, from := range map[string]string{"config.json": "config.json", "model.safetensors": "weights.safetensors"} {
			if err := os.Symlink(filepath.Join(golden.Dir(t, "model", model), from), filepath.Join(base, to)); err != nil {
				t.Fatal(err)
			}
		}
		adapter := filepath.Join("../../tools/verify/modelcase/testdata/adapters", name)
		l := opened(t, base)
		plain := answersOf(t, editions{list: []*Loaded{l, nil}}, asks(l.Vocab, 0))
		e, err := l.editionsOf([]Adapter{{"a", adapter}})
		if err != nil {
			t.Fatal(err)
		}
		src, err := all.Open(base, checkpoint.OpenOptions{Step: -1})
		if err != nil {
			t.Fatal(err)
		}
		f, err := peft.Open(adapter, src.Info().Model, src.Info().Family)
		if err != nil {
			t.Fatal(err)
		}
		d := ref.Open()
		merged, err := FromSource(d, peft.Merge(src, f), LoadOptions{Step: -1})
		if err != nil {
			t.Fatal(err)
		}
		want := answersOf(t, editions{list: []*Loaded{merged, nil}}, asks(l.Vocab, 0))
		for i, got := range answersOf(t, e, asks(l.Vocab, 1)) {
			if d := math.Abs(got.Tokens[0].LogProb - want[i].Tokens[0].LogProb); d > 1e-4 || got.Tokens[0].LogProb == plain[i].Tokens[0].LogProb {
				t.Errorf("%s: %v with the adapter, %v merged, %v without", name, got.Tokens[0].Choice, want[i].Tokens[0].Choice, plain[i].Tokens[0].Choice)
			}
		}
		if again := answersOf(t, e, asks(l.Vocab, 0)); !reflect.DeepEqual(again, plain) {
			t.Errorf("%s: the base has changed", name)
		}
		f.Close()
		src.Close()
		d.Close()
	}
}

// Claim: an adapter that does not fit the model, or is not there, is an error with its name.
func TestAdaptersAreRefused(t *testing.T) {
	l := opened(t, filepath.Join(golden.Dir(t, "merge"), "gpt2-f32-dora", "base"))
	if _, err := l.editionsOf([]Adapter{{"a", filepath.Join(t.TempDir(), "none")}}); err == nil || exitcode.CodeOf(err) != exitcode.NoInput || err.Error()[:10] != "adapter a:" {
		t.Errorf("%v", err)
	}
	b := newBatcher(editions{list: []*Loaded{l, nil}}, BatcherConfig{Blocks: 4, Sequences: 1, Tokens: 8, Queue: 1}, l.orders(), "")
	if err := b.Check(&Request{Prompt: []int32{1}, MaxNew: 1, Adapter: 1}); exitcode.CodeOf(err) != exitcode.Usage {
		t.Errorf("an adapter that there is not: %v", err)
	}
}

// Claim (docs/generate.md): a model that is loaded with an adapter has the logits of the model that PEFT merged it into,
// to rounding, on one rank and on two; a folder without an adapter is refused by the flag's name.
func TestLoadedWithAnAdapter(t *testing.T) {
	for dir, most := range mergeCases(t) {
		logits := func(layout Layout, folder string, o LoadOptions) (all []float32) {
			t.Helper()
			err := Run(layout, func() (*device.Device, error) { return ref.Open(), nil }, filepath.Join(dir, folder), o, func(rank int, m *Loaded) error {
				return m.Logits([]int32{1, 5, 2, 9}, func(_ int, row []float32) error {
					if rank == 0 {
						all = append(all, row...)
					}
					return nil
				})
			})
			if err != nil {
				t.Fatalf("%s: %v", dir, err)
			}
			return all
		}
		o := LoadOptions{Step: -1, Adapter: filepath.Join(dir, "adapter")}
		base, want := logits(Layout{}, "base", LoadOptions{Step: -1}), logits(Layout{}, "merged", LoadOptions{Step: -1})
		for _, layout := range []Layout{{}, {TP: 2}} {
			got, off, moved := logits(layout, "base", o), 0.0, 0.0
			for i := range want {
				off, moved = max(off, math.Abs(float64(got[i]-want[i]))), max(moved, math.Abs(float64(got[i]-base[i])))
			}
			if off > most || moved < 1e-3 {
				t.Errorf("%s, %+v: logits are off by %g, and %g from the base's", dir, layout, off, moved)
			}
		}
		o.Adapter = filepath.Join(dir, "base")
		if err := Run(Layout{}, func() (*device.Device, error) { return ref.Open(), nil }, filepath.Join(dir, "base"), o, nil); err == nil || !strings.Contains(err.Error(), "--adapter "+o.Adapter) {
			t.Error(err)
		}
	}
}
