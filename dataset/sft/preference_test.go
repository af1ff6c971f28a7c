package sft

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
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
	if err := source.ReadFolder(dir); err != nil {
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
	}
	if len(c.Kinds) != 3 {
		t.Error(fmt.Sprint(len(c.Kinds)), "kinds")
	}
}

// Claim (golden/dpo, TRL 1.16): answers with a label, and pairs as such, have the ids of TRL's KTO
// trainer, and the mismatched answers that it makes.
func TestLabelledAnswersOfTRL(t *testing.T) {
	dir, c, tok, config := preferenceConfig(t)
	for kind, want := range c.Kinds {
		path := filepath.Join(dir, want.File)
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
}

// Claim: a row that cannot be used is one line that names the file, the line, the field and what to
// do.
func TestWrongPreferences(t *testing.T) {
	_, _, tok, config := preferenceConfig(t)
	const user, assistant = `[{"role": "user", "content": "a"}]`, `[{"role": "assistant", "content": "b"}]`
	good := map[bool]string{true: `{"prompt": "a", "completion": "b", "label": true}`, false: `{"prompt": "a", "chosen": "b", "rejected": "c"}`}
	for _, w := range []struct {
		rule      Rule
		row, says string
	}{
		{RuleDPO, `[1]`, `the row is not an object; write JSON objects, one per line or in an array, as in {"prompt": "...", "chosen": "...", "rejected": "..."}`},
		{RuleDPO, `{"prompt": "a"`, "the row is not JSON"},
		{RuleDPO, `{"prompt": "a", "chosen": "b"}`, `field "rejected": the field is missing; give the row the answer that is worse than chosen`},
		{RuleORPO, `{"prompt": "a", "rejected": "b", "chosen": null}`, `field "chosen": the field is missing; give the row the answer that is better than rejected`},
		{RuleDPO, `{"prompt": "a", "chosen": 1, "rejected": "b"}`, `field "chosen": the value is neither a string nor a list of messages`},
		{RuleDPO, `{"prompt": "a", "chosen": "b", "rejected": []}`, `field "rejected": the list is empty`},
		{RuleDPO, `{"prompt": {}, "chosen": "b", "rejected": "c"}`, `field "prompt": the value is neither a string nor a list of messages`},
		{RuleDPO, `{"prompt": "a", "chosen": "b", "rejected": ` + assistant + `}`, `field "rejected": the value is a list of messages, but chosen is a string; write both as strings or both as lists of messages`},
		{RuleDPO, `{"prompt": ` + user + `, "chosen": "b", "rejected": "c"}`, `field "chosen": the value is a string, but prompt is a list of messages`},
		{RuleDPO, `{"prompt": ` + user + `, "chosen": [{"content": "b"}], "rejected": ` + assistant + `}`, `field "chosen": message 0 has no role`},
		{RuleDPO, `{"chosen": ` + user + `, "rejected": ` + assistant + `}`, `field "prompt": the field is missing, and chosen and rejected begin with different messages; give the row a prompt`},
		{RuleDPO, `{"prompt": "a", "completion": "b", "label": true}`, "one answer with a label, which only --tuning kto can use; this method needs prompt, chosen and rejected"},
		{RuleDPO, `{"messages": ` + user + `}`, `the row has the fields "messages", which are for --tuning sft; preference tuning needs prompt, chosen and rejected`},
		{RuleDPO, `{"question": "a", "answer": "b"}`, `the row has the fields "answer", "question"; preference tuning needs prompt, chosen and rejected`},
		{RuleDPO, `{"prompt": "a", "chosen": "b", "rejected": "c", "tools": 1}`, `field "tools": the value is not a list of objects`},
		{RuleKTO, `{"prompt": "a", "completion": "b"}`, `field "label": the field is missing; write true for a good answer, false for a bad one`},
		{RuleKTO, `{"prompt": "a", "completion": "b", "label": "good"}`, `field "label": the value is neither true nor false`},
		{RuleKTO, `{"completion": "b", "label": true}`, `field "prompt": the field is missing; write "" for an answer without a prompt`},
		{RuleKTO, `{"prompt": "a", "completion": ` + assistant + `, "label": true}`, `field "completion": the value is a list of messages, but prompt is a string`},
		{RuleKTO, `{"text": "a"}`, `--tuning kto needs prompt, completion and label, or prompt, chosen and rejected`},
		{RuleKTO, `{"prompt": "a", "chosen": "b", "rejected": "c"}`, "some rows are pairs of answers and some are single answers with a label; write only one kind in a file"},
		{RuleDPO, "{\"prompt\": \"\xff\"}", "the row is not UTF-8"},
	} {
		config.Rule = w.rule
		path := fileOf(t, good[w.rule == RuleKTO], w.row)
		_, err := ReadPreferences(path, tok, config)
		if err == nil || !strings.HasPrefix(err.Error(), path+":2: ") || !strings.Contains(err.Error(), w.says) || strings.Contains(err.Error(), "\n") || exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s: %v, want %s", w.row, err, w.says)
		}
	}
	config.Rule, config.Template = RuleDPO, nil
	if _, err := ReadPreferences(fileOf(t, `{"prompt": `+user+`, "chosen": `+assistant+`, "rejected": `+assistant+`}`), tok, config); err == nil || !strings.Contains(err.Error(), "--chat-template") {
		t.Errorf("no template: %v", err)
	}
	config.Length = 2
	if _, err := NewPreferences(fileOf(t, good[false], `{"prompt": "a name type", "chosen": "b", "rejected": "c"}`), tok, config); err != nil {
		t.Errorf("one row fits: %v", err)
	}
	if _, err := NewPreferences(fileOf(t, `{"prompt": "a name type", "chosen": "b", "rejected": "c"}`), tok, config); err == nil || !strings.Contains(err.Error(), "among the first 2 tokens of each row, none belongs to an answer (1 rows were read); raise --seq-length") {
		t.Errorf("nothing fits: %v", err)
	}
}

// Claim: a prompt that both answers contain is taken out of them, as TRL's extract_prompt does: of
// texts the characters they share without a space at the end, of conversations the messages they
// share, also next to a prompt that is a text.
func TestImplicitPrompts(t *testing.T) {
	const system, user = `{"role": "system", "content": "s"}`, `{"role": "user", "content": "u"}`
	answer := func(text string) string { return `{"role": "assistant", "content": "` + text + `"}` }
	list := func(messages ...string) string { return "[" + strings.Join(messages, ", ") + "]" }
	for _, w := range []struct{ row, prompt, chosen, rejected string }{
		{`{"chosen": "The sky is blue.", "rejected": "The sky is green."}`, "The sky is", " blue.", " green."},
		{`{"chosen": "The skies", "rejected": "The sky"}`, "The sk", "ies", "y"},
		{`{"chosen": "ab", "rejected": "abc"}`, "a", "b", "bc"},
		{`{"chosen": "ab", "rejected": "ab"}`, "a", "b", "b"},
		{`{"chosen": "日本", "rejected": "日英"}`, "日", "本", "英"},
		{`{"chosen": "x", "rejected": "y"}`, "", "x", "y"},
		{`{"prompt": "", "chosen": "x", "rejected": "xy"}`, "", "x", "xy"},
		{`{"chosen": ` + list(system, user, answer("a")) + `, "rejected": ` + list(system, user, answer("b")) + `}`, list(system, user), list(answer("a")), list(answer("b"))},
		{`{"prompt": "u", "chosen": ` + list(user, answer("a")) + `, "rejected": ` + list(user, answer("a")) + `}`, list(user), list(answer("a")), list(answer("a"))},
		{`{"chosen": [{"role": "user", "content": "u"}, ` + answer("a") + `], "rejected": [{"content": "u", "role": "user"}, ` + answer("b") + `]}`, list(user), list(answer("a")), list(answer("b"))},
	} {
		a, err := parsePreference([]byte(w.row), RuleDPO)
		if err != nil {
			t.Errorf("%s: %v", w.row, err)
			continue
		}
		text := func(p passage) string {
			if p.messages == nil {
				return p.text
			}
			var all []string
			for _, m := range p.messages {
				all = append(all, string(m))
			}
			return list(all...)
		}
		if p, c, r := text(a.prompt), text(a.list[0]), text(a.list[1]); p != w.prompt || c != w.chosen || r != w.rejected {
			t.Errorf("%s: %q %q %q, want %q %q %q", w.row, p, c, r, w.prompt, w.chosen, w.rejected)
		}
	}
}

// Claim: mismatched answers go round in blocks of a global batch, the last with the rest.
func TestMismatched(t *testing.T) {
	_, _, tok, config := preferenceConfig(t)
	config.Rule, config.Block, config.Length = RuleKTO, 3, 3
	var lines []string
	for i := range 8 {
		lines = append(lines, fmt.Sprintf(`{"prompt": "%c", "completion": " %d", "label": %d}`, 'a'+i, i, i%2))
	}
	set, err := NewPreferences(fileOf(t, lines...), tok, config)
	if err != nil {
		t.Fatal(err)
	}
	other := []int{2, 0, 1, 5, 3, 4, 7, 6}
	for i, r := range set.Rows {
		if got, want := tok.Decode(r.Answers[1].IDs), fmt.Sprintf("%c %d", 'a'+i, other[i]); got != want || r.Good != (i%2 == 1) {
			t.Errorf("row %d: %q, good %v, want %q", i, got, r.Good, want)
		}
	}
}
