package sft

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"monotron/tokenizer/chat"
)

func fileOf(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Claim: a row that cannot be used is one error with the file, the line and the field.
func TestWrongRows(t *testing.T) {
	_, c, tok, template := opened(t)
	for _, w := range []struct{ row, says string }{
		{`[1]`, "the row is not an object"},
		{`{"messages": `, "the row is not JSON"},
		{`{"a": 1}`, `the row has the fields "a"; it needs one of these: messages; `},
		{`{}`, "the row has the fields (none)"},
		{`{"messages": {}}`, `field "messages": the value is not a list of messages`},
		{`{"messages": []}`, `field "messages": the list is empty`},
		{`{"messages": [1]}`, `field "messages": message 0 is not an object`},
		{`{"messages": [{"content": "a"}]}`, `field "messages": message 0 has no role`},
		{`{"messages": [{"role": "user", "content": "a"}]}`, `field "messages": no message is from the assistant`},
		{`{"messages": [{"role": "user", "content": "a"}], "tools": "x"}`, `field "tools": the text is not JSON`},
		{`{"messages": [{"role": "user", "content": "a"}], "tools": [1]}`, `field "tools": the value is not a list of objects`},
		{`{"messages": [{"role": "user", "content": "a"}], "chat_template_kwargs": 1}`, `field "chat_template_kwargs": the value is not an object`},
		{`{"messages": [{"role": "user"}, {"role": "assistant", "content": "a"}]}`, `field "messages": the chat template: line `},
		{`{"prompt": [{"role": "user"}], "completion": [{"role": "assistant", "content": "a"}]}`, `field "prompt": the chat template: line `},
		{`{"conversations": [{"from": "dog", "value": "a"}]}`, `field "conversations": turn 0 has the value "dog" in "from"`},
		{`{"conversations": [{"from": "human"}]}`, `field "conversations": turn 0 needs the strings`},
		{`{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": null}]}`, `field "conversations": turn 1 needs the strings`},
		{`{"messages": [{"role": "user", "content": "a"}, {"role": "user", "Role": "assistant", "content": "b"}]}`, `field "messages": no message is from the assistant`},
		{`{"prompt": "a", "completion": null}`, `the row has the fields "completion" (null), "prompt"; it needs one of these: messages; `},
		{`{"prompt": "a", "completion": 1}`, `field "completion": the value is not a string`},
		{`{"prompt": 1, "completion": "a"}`, `field "prompt": the value is not a list of messages`},
		{`{"text": 1}`, `field "text": the value is not a string`},
		{`{"input_ids": [1, "a"]}`, `field "input_ids": the value is not a list of token ids`},
		{`{"input_ids": [1, null]}`, `field "input_ids": entry 1 is null; the list must have only token ids`},
		{`{"input_ids": [1, 2], "labels": [1, null]}`, `field "labels": entry 1 is null; the list must have only integers`},
		{`{"input_ids": [1, 2], "completion_mask": [null, 1]}`, `field "completion_mask": entry 0 is null`},
		{`{"input_ids": [1, 2], "labels": [1]}`, `field "labels": the list has 1 entries, but input_ids has 2`},
		{`{"input_ids": [1, 2], "labels": [1, 3]}`, `field "labels": entry 1 is 3; it must be the token id 2, or -100`},
		{`{"input_ids": [1, 2], "assistant_masks": [1, 3]}`, `field "assistant_masks": entry 1 is 3; it must be 0 or 1`},
		{`{"input_ids": [1, 999999]}`, `token 1 has the id 999999`},
		{`{"chosen": "a", "rejected": "b"}`, "preference tuning"},
		{"{\"text\": \"\xff\"}", "the row is not UTF-8"},
	} {
		path := fileOf(t, `{"text": "good"}`, w.row)
		_, err := Read(path, tok, Config{Length: 8, Template: template, EOS: c.EOS})
		if err == nil || !strings.HasPrefix(err.Error(), path+":2: ") || !strings.Contains(err.Error(), w.says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", w.row, err, w.says)
		}
	}
	if _, err := Read(fileOf(t, `{"messages": [{"role": "user", "content": "a"}]}`), tok, Config{Length: 8}); err == nil || !strings.Contains(err.Error(), "--chat-template") {
		t.Errorf("no template: %v", err)
	}
	if _, _, err := Load(fileOf(t, `{"input_ids": [1, 2], "labels": [1, -100]}`), tok, Config{Length: 8}); err == nil || !strings.Contains(err.Error(), "none contributes to the loss (1 rows were read)") {
		t.Errorf("nothing learned: %v", err)
	}
}

// Claim (docs/finetuning.md): a row with the fields of several kinds is of the first; what it does not learn is counted
// with the rows that have it, empty fields and those of no kind aside.
func TestFieldsThatAreNotLearned(t *testing.T) {
	_, c, tok, template := opened(t)
	path := fileOf(t, `{"text": "a text", "prompt": "a", "completion": " b"}`, `{"text": "other", "prompt": "a", "completion": " c", "id": 3}`, `{"text": "t", "prompt": "p"}`,
		`{"instruction": "i", "input": "", "output": "o", "text": "", "prompt": null}`, `{"messages": [{"role": "user", "content": "u"}, {"role": "assistant", "content": "v"}], "conversations": [], "text": "x"}`)
	_, counts, err := Load(path, tok, Config{Length: 64, Template: template, EOS: c.EOS})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"1 of 5 rows have fields that training ignores: prompt (in rows that have text, only these fields are read)",
		"1 of 5 rows have fields that training ignores: text (in rows that have messages, only these fields are read)",
		"2 of 5 rows have fields that training ignores: text (in rows that have prompt and completion, only these fields are read)"}
	if got := counts.UnusedText(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	plain, err := Read(fileOf(t, `{"prompt": "a", "completion": " b"}`), tok, Config{Length: 64, EOS: c.EOS})
	if err != nil {
		t.Fatal(err)
	}
	both, err := Read(path, tok, Config{Length: 64, Template: template, EOS: c.EOS})
	if err != nil || !slices.Equal(both[0].IDs, plain[0].IDs) {
		t.Errorf("%v: %v, want %v", err, both[0].IDs, plain[0].IDs)
	}
}

// Claim: rows of ShareGPT and Alpaca mean the conversation that they say; without a template
// Alpaca's rows are its published prompt; token rows learn where labels and masks agree; a text
// that ends with the end-of-sequence token gets no second one.
func TestOtherRows(t *testing.T) {
	_, c, tok, template := opened(t)
	plain, err := chat.New(chat.Source{Text: "{% for m in messages %}{{ m.role }}:{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}"})
	if err != nil {
		t.Fatal(err)
	}
	keys, err := chat.New(chat.Source{Text: "{% for m in messages %}{% generation %}{{ m | join(' ') }};{% endgeneration %}{% endfor %}"})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		row, text, learned string
		template           *chat.Template
	}{
		{`{"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}], "system": "s"}`, "system:s\nuser:a\nassistant:b\n", "b\n", plain},
		{`{"conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}`, "user:a\nassistant:b\n", "b\n", plain},
		{`{"conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}`, "role content;role content;", "role content;role content;", keys},
		{`{"conversations": [{"role": null, "from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}`, "user:a\nassistant:b\n", "b\n", plain},
		{`{"conversations": [{"role": "user", "content": "a"}, {"role": "assistant", "Role": "user", "content": "b"}]}`, "user:a\nassistant:b\n", "b\n", plain},
		{`{"instruction": "i", "input": "x", "output": "o"}`, "user:i\nx\nassistant:o\n", "o\n", plain},
		{`{"instruction": "i", "input": "x", "output": "o"}`, alpacaInput + "i\n\n### Input:\nx\n\n### Response:\no</s>", "o</s>", nil},
		{`{"instruction": "i", "output": "o"}`, alpacaPlain + "i\n\n### Response:\no</s>", "o</s>", nil},
		{`{"prompt": [{"role": "user", "content": "a"}], "completion": [{"role": "assistant", "content": "b"}]}`, "user:a\nassistant:b\n", "b\n", plain},
		{`{"text": "ab"}`, "ab</s>", "ab</s>", template},
		{`{"text": "ab</s>"}`, "ab</s>", "ab</s>", template},
	} {
		docs, err := Read(fileOf(t, w.row), tok, Config{Length: 1000, Template: w.template, EOS: c.EOS})
		if err != nil {
			t.Errorf("%s: %v", w.row, err)
			continue
		}
		d, learned := docs[0], ""
		for _, s := range d.Learn {
			learned += tok.Decode(d.IDs[s[0]:s[1]])
		}
		if got := tok.Decode(d.IDs); got != w.text || learned != w.learned {
			t.Errorf("%s: %q learns %q, want %q %q", w.row, got, learned, w.text, w.learned)
		}
	}
	docs, err := Read(fileOf(t, `{"input_ids": [0, 1, 2, 3], "labels": [0, 1, -100, 3], "assistant_masks": [1, 1, 1, 0]}`, `{"input_ids": [0, 1, 2], "completion_mask": [false, true, true]}`), tok, Config{Length: 1000})
	if err != nil || fmt.Sprint(docs[0].Learn, docs[1].Learn) != "[[0 2]] [[1 3]]" {
		t.Errorf("%v %v", docs, err)
	}
}
