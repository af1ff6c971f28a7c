package sft

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"monotron/internal/golden"
	"monotron/tokenizer"
	"monotron/tokenizer/chat"
)

type goldenRow struct {
	IDs     []int32
	Labels  []int32
	Learned int `json:"learned_tokens"`
}

type goldenPack struct {
	goldenRow
	Positions, Segments []int32
}

type goldenCase struct {
	MaxLength  int    `json:"max_length"`
	PackLength int    `json:"pack_length"`
	EOS        string `json:"eos_token"`
	Kinds      map[string]struct {
		Rows  []goldenRow
		Packs []goldenPack
	}
}

// opened is the case of golden/sft, its tokenizer and its template.
func opened(t *testing.T) (dir string, c goldenCase, tok tokenizer.Tokenizer, template *chat.Template) {
	t.Helper()
	dir = golden.Dir(t, "sft")
	golden.ReadJSON(t, filepath.Join(dir, "case.json"), &c)
	tok = tokenizerOf(t)
	text, err := os.ReadFile(filepath.Join(dir, "chat_template.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	if template, err = chat.New(chat.Source{Text: string(text), EOS: c.EOS}); err != nil {
		t.Fatal(err)
	}
	return dir, c, tok, template
}

func tokenizerOf(t *testing.T) tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.FromConfig(tokenizer.Config{Type: "HuggingFaceTokenizer", Model: filepath.Join(golden.Dir(t, "chat"), "tokenizer.json")})
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// labels are d's in the manner of Hugging Face: the id, or -100.
func (d *Document) labels() []int32 {
	out := slices.Repeat([]int32{ignored}, len(d.IDs))
	for _, s := range d.Learn {
		copy(out[s[0]:s[1]], d.IDs[s[0]:s[1]])
	}
	return out
}

// Claim (golden/sft, TRL 1.16): rows of messages and of prompt and completion give the ids, the
// labels and the number of learned tokens of TRL's trainer, truncation included.
func TestRowsOfTRL(t *testing.T) {
	dir, c, tok, template := opened(t)
	for kind, want := range c.Kinds {
		docs, err := Read(filepath.Join(dir, kind+".jsonl"), tok, Config{Length: c.MaxLength, Template: template, EOS: c.EOS})
		if err != nil {
			t.Fatal(err)
		}
		if len(docs) != len(want.Rows) || len(docs) == 0 {
			t.Fatalf("%s: %d rows, want %d", kind, len(docs), len(want.Rows))
		}
		for i, d := range docs {
			if w := want.Rows[i]; !slices.Equal(d.IDs, w.IDs) || !slices.Equal(d.labels(), w.Labels) || d.Learned() != w.Learned {
				t.Errorf("%s row %d: %v %v %d, want %v %v %d", kind, i, d.IDs, d.labels(), d.Learned(), w.IDs, w.Labels, w.Learned)
			}
		}
	}
}

// Claim (golden/sft): packed rows have the ids, shifted labels, positions and segments of the
// reference, and no row's first token is learned.
func TestPacksOfReference(t *testing.T) {
	dir, c, tok, template := opened(t)
	for kind, want := range c.Kinds {
		config := Config{Length: c.MaxLength, Template: template, EOS: c.EOS}
		docs, _, err := Load(filepath.Join(dir, kind+".jsonl"), tok, config) // rows are truncated to less than a pack
		if err != nil {
			t.Fatal(err)
		}
		config.Length, config.Packing = c.PackLength, PackInOrder
		set := &Set{length: config.Length, packed: true, pad: 3}
		if set.docs, set.packs = pack(docs, config); len(set.packs) != len(want.Packs) {
			t.Fatalf("%s: %d packs, want %d", kind, len(set.packs), len(want.Packs))
		}
		for k, w := range want.Packs {
			s, err := set.Sample(int64(k))
			if err != nil {
				t.Fatal(err)
			}
			for i := range w.IDs {
				learned := i+1 < len(w.IDs) && w.Labels[i+1] != ignored
				if s.Tokens[i] != w.IDs[i] || s.PositionIDs[i] != w.Positions[i] || (s.LossMask[i] == 1) != learned || learned && s.Labels[i] != w.Labels[i+1] {
					t.Fatalf("%s pack %d token %d: %d at %d, label %d (%v); want %d at %d", kind, k, i, s.Tokens[i], s.PositionIDs[i], s.Labels[i], s.LossMask[i], w.IDs[i], w.Positions[i])
				}
				if first := int32(slices.Index(w.Segments, w.Segments[i])); s.DocStart[i] != first {
					t.Fatalf("%s pack %d token %d sees from %d on, want %d", kind, k, i, s.DocStart[i], first)
				}
			}
		}
	}
}

// prefixCase is a render of golden/chat.
type prefixCase struct {
	Conversation string
	Text         *string
	IDs          []int32
	Mask         *[][2]int `json:"assistant_mask_prefix"`
	Fails        string    `json:"prefix_property_fails"`
}

type prefixFile struct {
	BOS   string `json:"bos_token"`
	EOS   string `json:"eos_token"`
	Now   string
	Cases []prefixCase
}

type chatRow struct {
	Messages      []json.RawMessage
	Tools, Kwargs json.RawMessage
}

// Claim (golden/chat): for every template and conversation, the assistant's tokens by rendering
// prefixes are those of the reference, and a template that breaks the prefix property is refused
// with the message's number.
func TestSpansByPrefix(t *testing.T) {
	dir, tok := golden.Dir(t, "chat"), tokenizerOf(t)
	var conversations map[string]chatRow
	golden.ReadJSON(t, filepath.Join(dir, "conversations.json"), &conversations)
	files, _ := filepath.Glob(filepath.Join(dir, "cases", "*.json"))
	found, refused := 0, 0
	for _, file := range files {
		var f prefixFile
		golden.ReadJSON(t, file, &f)
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		text, err := os.ReadFile(filepath.Join(dir, "templates", name+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		r := &renderer{tok: tok}
		if r.config.Template, err = chat.New(chat.Source{Text: string(text), BOS: f.BOS, EOS: f.EOS}); err != nil {
			t.Fatal(err)
		}
		if r.now, err = time.Parse("2006-01-02 15:04:05", f.Now); err != nil {
			t.Fatal(err)
		}
		for _, c := range f.Cases {
			switch {
			case c.Text == nil:
			case c.Fails != "":
				refused++
				c.check(t, r, conversations[c.Conversation])
			case c.Mask != nil:
				found++
				c.check(t, r, conversations[c.Conversation])
			}
		}
	}
	if t.Logf("%d spans, %d refusals", found, refused); found < 300 || refused < 100 {
		t.Errorf("only %d spans and %d refusals were compared", found, refused)
	}
}

func (c *prefixCase) check(t *testing.T, r *renderer, q chatRow) {
	t.Helper()
	spans, _, err := r.prefixes(r.config.Template, &row{messages: q.Messages, tools: q.Tools, variables: q.Kwargs}, *c.Text)
	if c.Fails != "" {
		number, _, _ := strings.Cut(c.Fails, ":")
		if err == nil || !strings.Contains(err.Error(), number+" ") {
			t.Errorf("%s: %v, want a refusal like %s", c.Conversation, err, c.Fails)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v", c.Conversation, err)
		return
	}
	p := r.positions(c.IDs, *c.Text)
	var got [][2]int
	for _, s := range spans {
		got = append(got, [2]int{p.first(s[0]), p.first(s[1])})
	}
	if got = joined(got); fmt.Sprint(got) != fmt.Sprint(*c.Mask) {
		t.Errorf("%s: tokens %v, want %v", c.Conversation, got, *c.Mask)
	}
}
