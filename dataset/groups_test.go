package dataset

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Claim (docs/data.md): a group of --train-weighted-split-paths takes the part of each dataset
// that it names, by weights; the text may be in a file. Parts of one dataset have arrays of their own in
// the cache, and all of a dataset has the samples of --train-data-path.
func TestWeightedSplitPaths(t *testing.T) {
	dir := t.TempDir()
	worked(t, dir)
	if err := os.WriteFile(filepath.Join(dir, "train.txt"), []byte(`"ALL: 0.75 0:0.6 d1, 0.25 0.6:1 d1"`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, g := range map[string]Groups{"text": {Texts: []string{"ALL: 0.75 0:0.6 d1, 0.25 0.6:1 d1"}}, "file": {File: "train.txt"}} {
		cfg := Config{Dir: dir, SequenceLength: 4, Groups: [3]Groups{Train: g, Valid: {Texts: []string{"v: 1 0:1 d1"}}}}
		train, valid, test, err := Build(cfg, null(t, 1000), [3]*int64{count(8), count(5), count(5)})
		if err != nil {
			t.Fatal(name, err)
		}
		b := train.(*Blended)
		first, second := b.Members[0], b.Members[1]
		if first.First != 0 || first.End != 6 || second.First != 6 || second.End != 10 || first.Hash == second.Hash || b.Weights[0] != 0.75 || test != nil {
			t.Errorf("%s: [%d, %d) and [%d, %d) by %v, test %v", name, first.First, first.End, second.First, second.End, b.Weights, test)
		}
		cfg = Config{Dir: dir, SequenceLength: 4, TrainDataPath: []string{"d1"}, ValidDataPath: []string{"d1"}}
		_, want, _, err := Build(cfg, null(t, 1000), [3]*int64{count(5), count(5), nil})
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(5) {
			got, err := valid.Sample(i)
			if err != nil {
				t.Fatal(err)
			}
			other, err := want.Sample(i)
			if err != nil {
				t.Fatal(err)
			}
			for j, token := range other.Tokens {
				if got.Tokens[j] != token {
					t.Fatalf("%s: sample %d is %v, by --valid-data-path %v", name, i, got.Tokens, other.Tokens)
				}
			}
		}
	}
}

// Claim: a text or file that is not a group is refused with the flag and what it must be.
func TestWrongWeightedSplitPaths(t *testing.T) {
	dir := t.TempDir()
	worked(t, dir)
	for i, text := range []string{`ALL: 1 0:1 d1`, "\"a: 1 0:1 d1\"\n\"b: 1 0:1 d1\"\n", ``, `"`} {
		if err := os.WriteFile(filepath.Join(dir, "bad"+string(rune('0'+i))), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for text, want := range map[string]string{
		"d1":                   "\"d1\" is not of the form NAME: WEIGHT START:END PREFIX",
		"a: d1":                `"d1" is not of the form WEIGHT START:END PREFIX`,
		"a: 0.5 0:1 d1 x":      `"0.5 0:1 d1 x" is not of the form`,
		"a: 0.5 0:1 d1,":       `"" is not of the form`,
		"a: -1 0:1 d1":         "the weight -1 of d1",
		"a: nan 0:1 d1":        "the weight nan of d1",
		"a: inf 0:1 d1":        "the weight inf of d1",
		"a: 1 0.5:0.5 d1":      "0 <= START < END <= 1",
		"a: 1 0:1.5 d1":        "0 <= START < END <= 1",
		"a: 1 1 d1":            "0 <= START < END <= 1",
		"a: 1 nan:1 d1":        "0 <= START < END <= 1",
		"a: 1 0:0.01 d1":       "d1: the range 0.0:0.01 contains none of the dataset's 10 sequences; widen the range",
		"a: 1 0:1 d1|b: 1 0:1": "2 groups",
		"=bad0":                "including the quotes",
		"=bad1":                "must be one line",
		"=bad2":                "must be one line",
		"=bad3":                "must be one line",
		"=bad9":                "bad9",
	} {
		g := Groups{Texts: strings.Split(text, "|")}
		if file, is := strings.CutPrefix(text, "="); is {
			g = Groups{File: file}
		}
		_, _, _, err := Build(Config{Dir: dir, SequenceLength: 4, Groups: [3]Groups{g}}, null(t, 1000), [3]*int64{count(5), nil, nil})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
}
