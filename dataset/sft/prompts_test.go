package sft

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

func promptsOf(t *testing.T, c Config, text string) (*Prompts, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "prompts.jsonl")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return NewPrompts(path, tokenizerOf(t), c)
}

// Claim: a text is a prompt as it is, messages are rendered with the generation prompt; answers may be
// texts or numbers as written; prompts that fill the length are dropped; and a sample with an answer learns the answer.
func TestPrompts(t *testing.T) {
	_, _, tok, c := preferenceConfig(t)
	c.Length = 24
	set, err := promptsOf(t, c, `{"prompt": "Count", "answer": " 7"}
{"prompt": [{"role": "user", "content": "a"}], "answer": 7.50, "level": 3}
{"prompt": "`+strings.Repeat("a b c ", 40)+`"}
`)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Rows) != 2 || set.Counts.Dropped != 1 || set.Counts.Rows != 3 {
		t.Fatalf("%s", set)
	}
	ids, err := tok.Encode("Count")
	if err != nil || !slices.Equal(set.Rows[0].IDs, ids) || *set.Rows[0].Answer != " 7" || set.Rows[0].Line != 1 {
		t.Errorf("%+v, %v", set.Rows[0], err)
	}
	if text := tok.Decode(set.Rows[1].IDs); !strings.Contains(text, "a") || !strings.HasSuffix(text, "assistant\n") || *set.Rows[1].Answer != "7.50" || string(set.Rows[1].Fields["level"]) != "3" {
		t.Errorf("%q, %+v", text, set.Rows[1])
	}
	s, n := set.With(0, []int32{5, 6}), len(ids)
	if s.Filled != n+2 || s.Tokens[n] != 5 || s.Tokens[n+1] != 6 || s.Labels[n-1] != 5 || s.Labels[n] != 6 || s.LossMask[n-1] != 1 || s.LossMask[n] != 1 || n > 1 && s.LossMask[n-2] != 0 || s.LossMask[n+1] != 0 {
		t.Errorf("%+v", s)
	}
}

// Claim: a row that is not a prompt is an error that names file, line and field.
func TestPromptsRefused(t *testing.T) {
	_, _, _, c := preferenceConfig(t)
	c.Length = 64
	for _, w := range []struct{ row, says string }{
		{`{"completion": "a"}`, `the row has the fields "completion"; --tuning grpo needs the field prompt`},
		{`{"prompt": 7}`, `field "prompt": the value is neither a string nor a list of messages`},
		{`{"prompt": ""}`, `field "prompt": the prompt has no tokens`},
		{`{"prompt": []}`, `field "prompt": the list is empty`},
		{`{"prompt": "a", "answer": [1]}`, `field "answer": the value is neither a string nor a number`},
		{`{"prompt": "a", "tools": 3}`, `field "tools"`},
		{`["a"]`, "the row is not an object"},
		{`{"prompt": "a"`, "the row is not JSON"},
	} {
		_, err := promptsOf(t, c, "{\"prompt\": \"a\"}\n"+w.row+"\n")
		if err == nil || !strings.Contains(err.Error(), "prompts.jsonl:2: ") || !strings.Contains(err.Error(), w.says) || exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s: %v; want %s", w.row, err, w.says)
		}
	}
	c.NeedsAnswer = true
	if _, err := promptsOf(t, c, "{\"prompt\": \"a\", \"answer\": 1}\n{\"prompt\": \"b\"}\n"); err == nil || !strings.Contains(err.Error(), `prompts.jsonl:2: field "answer": the field is missing; --reward exact`) {
		t.Errorf("a row without its answer: %v", err)
	}
}

// Claim: samples come in groups with one prompt, a batch comes again as often as there are iterations,
// and an epoch has each prompt once.
func TestGroupedPrompts(t *testing.T) {
	_, _, _, c := preferenceConfig(t)
	c.Length, c.Shuffle, c.Seed = 64, true, 3
	set, err := promptsOf(t, c, strings.Repeat("{\"prompt\": \"a\"}\n", 6))
	if err != nil {
		t.Fatal(err)
	}
	g := Grouped(set, c, Groups{Size: 2, Batch: 4, Iterations: 3})
	row := func(k int64) int64 {
		s, err := g.Sample(k)
		if err != nil {
			t.Fatal(err)
		}
		return s.Row
	}
	seen := map[int64]int{}
	for batch := range int64(9) { // 3 times 2 prompts, each 3 times
		for i := range int64(4) {
			at := batch*4 + i
			if row(at) != row(at/2*2) || row(at) != row(batch/3*12+i) {
				t.Errorf("sample %d is row %d", at, row(at))
			}
			seen[row(at)]++
		}
	}
	for r, n := range seen {
		if n != 6 {
			t.Errorf("row %d came %d times", r, n)
		}
	}
	if len(seen) != 6 || PromptsOf(g) != set {
		t.Errorf("%d rows in an epoch", len(seen))
	}
}
