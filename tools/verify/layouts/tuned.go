package layouts

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"monotron/dataset"
	"monotron/dataset/sft"
	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/training"
	"monotron/tokenizer"
)

// tuned are made rows to tune on, as dataset/sft cuts and packs them. A sequence is known by its tokens.
type tuned struct {
	rows    dataset.Dataset
	numbers map[string]int64 // of sequences
}

// newTuned makes rows as many as the steps take.
func newTuned(c *config.Run, steps int) (*tuned, error) {
	dir, err := os.MkdirTemp("", "monotron-verify")
	if err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	defer func() { _ = os.RemoveAll(dir) }() // rows that were read
	path := filepath.Join(dir, "rows.jsonl")
	n := steps * c.GlobalBatchSize
	if sft.Packs(c.Tuning.Packing) {
		n *= 3 // which fill fewer sequences
	}
	if err := os.WriteFile(path, madeRows(c, n), 0o600); err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	tok, err := tokenizer.FromConfig(c.Tokenizer)
	if err != nil {
		return nil, err
	}
	settings, err := training.TuningConfig(c, tok)
	if err != nil {
		return nil, err
	}
	t := &tuned{numbers: map[string]int64{}}
	var set dataset.Dataset
	if c.Tuning.Prefers() != nil {
		set, err = sft.NewPreferences(path, tok, settings)
	} else {
		set, err = sft.New(path, tok, settings)
	}
	if err != nil {
		return nil, err
	}
	for k := range set.Len() {
		s, err := set.Sample(k)
		if err != nil {
			return nil, err
		}
		for _, one := range append([]dataset.Sample{s}, s.Also...) {
			t.numbers[fmt.Sprint(one.Tokens)] = int64(len(t.numbers))
		}
	}
	settings.Shuffle = false
	t.rows = sft.Epochs(set, settings)
	return t, nil
}

// madeRows are JSON lines of random tokens: answers of random lengths to prompts of random lengths.
func madeRows(c *config.Run, n int) []byte {
	var text strings.Builder
	for i := range n {
		r := rand.New(rand.NewPCG(uint64(i), 11))
		ids := func(most int) (list []int) {
			for range 2 + r.IntN(most) {
				list = append(list, r.IntN(c.Tokenizer.VocabSize))
			}
			return list
		}
		words := func(list []int) string { return strings.Trim(fmt.Sprint(list), "[]") }
		prompt, answer := ids(c.SeqLength/3), ids(c.SeqLength/3)
		var row any = map[string]string{"prompt": words(prompt), "chosen": " " + words(answer), "rejected": " " + words(ids(c.SeqLength/3))}
		if c.Tuning.Prefers() == nil {
			labels := make([]int, len(prompt), len(prompt)+len(answer))
			for k := range labels {
				labels[k] = -100
			}
			row = map[string][]int{"input_ids": append(prompt, answer...), "labels": append(labels, answer...)}
		}
		line, _ := json.Marshal(row) // texts and numbers
		text.Write(append(line, '\n'))
	}
	return []byte(text.String())
}

// set are the rows.
func (t *tuned) set() dataset.Dataset { return t.rows }

// number is the sequence of these tokens; -1: none has them.
func (t *tuned) number(row []int32) int64 {
	if n, known := t.numbers[fmt.Sprint(row)]; known {
		return n
	}
	return -1
}
