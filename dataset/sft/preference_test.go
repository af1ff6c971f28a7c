package sft

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"monotron/internal/golden"
	"monotron/tokenizer"
	"monotron/tokenizer/chat"
)

// preferenceCase is the case of golden/dpo.
type preferenceCase struct {
	MaxLength int `json:"max_length"`
	Training  struct {
		Rows int `json:"global_batch_rows"`
	}
	Kinds map[string]struct {
		File string
		DPO  []pairRow `json:"rows_of_dpo"`
		ORPO []pairRow `json:"rows_of_orpo_and_simpo"`
		KTO  []struct {
			IDs   []int32
			From  int
			KLIDs []int32 `json:"kl_ids"`
			Label bool
		} `json:"rows_of_kto"`
	}
}

type pairRow struct {
	ChosenFrom       int `json:"chosen_from"`
	RejectedFrom     int `json:"rejected_from"`
	Chosen, Rejected []int32
	Dropped          bool
}

func preferenceConfig(t *testing.T) (dir string, c preferenceCase, tok tokenizer.Tokenizer, out Config) {
	t.Helper()
	dir = golden.Dir(t, "dpo")
	golden.ReadJSON(t, filepath.Join(dir, "case.json"), &c)
	tok = tokenizerOf(t)
	source := chat.Source{BOS: "<s>", EOS: "</s>"}
	if err := source.Beside(dir); err != nil {
		t.Fatal(err)
	}
	template, err := chat.New(source)
	if err != nil {
		t.Fatal(err)
	}
	out = Config{Length: c.MaxLength, Template: template, EOS: "</s>", Block: c.Training.Rows}
	for text, id := range map[string]*int32{"<s>": &out.BOSID, "</s>": &out.EOSID} {
		ids, err := tokenizer.AppendPlain(tok, nil, text)
		if err != nil || len(ids) != 1 {
			t.Fatal(ids, err)
		}
		*id = ids[0]
	}
	return dir, c, tok, out
}

// Claim (golden/dpo, TRL 1.16): rows of texts and of messages have the ids of TRL's DPO, ORPO, CPO
// and KTO trainers, their answers begin where TRL's do, and the rows that TRL drops are dropped.
func TestPreferencesOfTRL(t *testing.T) {
	dir, c, tok, config := preferenceConfig(t)
	for kind, want := range c.Kinds {
		path := filepath.Join(dir, want.File)
		for rule, rows := range map[Rule][]pairRow{RuleDPO: want.DPO, RuleORPO: want.ORPO} {
			if rows == nil {
				continue
			}
			config.Rule = rule
			all, err := ReadPreferences(path, tok, config)
			if err != nil {
				t.Fatal(err)
			}
			set, err := NewPreferences(path, tok, config)
			if err != nil {
				t.Fatal(err)
			}
			if len(all) != len(rows) {
				t.Fatalf("%s %s: %d rows, want %d", kind, rule, len(all), len(rows))
			}
			kept := 0
			for i, w := range rows {
				if w.Dropped != !all[i].fits(c.MaxLength) {
					t.Errorf("%s %s row %d: dropped %v, want %v", kind, rule, i, !w.Dropped, w.Dropped)
				}
				if w.Dropped {
					continue
				}
				for j, d := range set.Rows[kept].Answers {
					ids, from := w.Chosen, w.ChosenFrom
					if j == 1 {
						ids, from = w.Rejected, w.RejectedFrom
					}
					if !slices.Equal(d.IDs, ids) || d.From() != from {
						t.Errorf("%s %s row %d answer %d: %v from %d, want %v from %d", kind, rule, i, j, d.IDs, d.From(), ids, from)
					}
				}
				kept++
			}
			if kept != int(set.Len()) || kept == 0 || set.Counts.Dropped != len(rows)-kept {
				t.Errorf("%s %s: %d rows, want %d", kind, rule, set.Len(), kept)
			}
		}
		config.Rule = RuleKTO
		set, err := NewPreferences(path, tok, config)
		if err != nil {
			t.Fatal(err)
		}
		if len(set.Rows) != len(want.KTO) || len(want.KTO) == 0 {
			t.Fatalf("%s: %d rows of KTO, want %d", kind, len(set.Rows), len(want.KTO))
		}
		for i, w := range want.KTO {
			r := set.Rows[i]
			if a, b := r.Answers[0], r.Answers[1]; !slices.Equal(a.IDs, w.IDs) || a.From() != w.From || !slices.Equal(b.IDs, w.KLIDs) || b.From() != w.From || r.Good != w.Label {
				t.Errorf("%s KTO row %d: %v from %d, mismatched %v, good %v, want %v", kind, i, a.IDs, a.From(), b.IDs, r.Good, w)
			}
		}
	}
	if len(c.Kinds) != 3 {
		t.Error(fmt.Sprint(len(c.Kinds)), "kinds")
	}
}
