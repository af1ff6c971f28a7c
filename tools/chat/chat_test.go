package chat

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/megatron/inference"
	"monotron/tokenizer"
	"monotron/tokenizer/chat"
)

// model is that of golden/sft as a folder, with its chat template or without.
func model(t *testing.T, template bool) string {
	t.Helper()
	dir, from := t.TempDir(), golden.Dir(t, "sft")
	files := map[string]string{"config.json": filepath.Join(from, "config.json"), "model.safetensors": filepath.Join(from, "weights.safetensors"),
		"tokenizer.json": filepath.Join(golden.Dir(t, "chat"), "tokenizer.json")}
	if template {
		files["chat_template.jinja"] = filepath.Join(from, "chat_template.jinja")
	}
	for to, path := range files {
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func openRef(string) (*device.Device, error) { return ref.Open(), nil }

// talkTo gives chat the lines of in.
func talkTo(in string, args ...string) (out, notes string, err error) {
	var o, n bytes.Buffer
	app := &cli.App{Reader: strings.NewReader(in), Writer: &o, ErrWriter: &n, Commands: []*cli.Command{Command(openRef)}, ExitErrHandler: func(*cli.Context, error) {}}
	err = app.Run(append([]string{"monotron", "chat"}, args...))
	return o.String(), n.String(), err
}

// greedy is what the model of dir says to a text, by generate's way.
func greedy(t *testing.T, dir, text string, plain bool, most int) (answer string) {
	t.Helper()
	d := ref.Open()
	defer d.Close()
	m, err := inference.Load(d, dir, inference.LoadOptions{Step: -1})
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.FromConfig(m.Tokenizer)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := tok.Encode(text)
	if plain {
		ids, err = tokenizer.AppendPlain(tok, nil, text)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Sample(ids, inference.SampleOptions{MaxNew: most})
	if err != nil {
		t.Fatal(err)
	}
	return tok.Decode(s.IDs)
}

// rendered is a conversation as the template of golden/sft writes it.
func rendered(t *testing.T, turns ...turn) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(golden.Dir(t, "sft"), "chat_template.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	template, err := chat.New(chat.Source{Text: string(text)})
	if err != nil {
		t.Fatal(err)
	}
	var messages []json.RawMessage
	for _, one := range turns {
		message, err := json.Marshal(one)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, message)
	}
	out, err := template.Render(messages, chat.Options{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Claim: an answer is what the model says to the conversation so far as its template writes it; /reset
// and /system restart; standard output has the answers alone.
func TestConversation(t *testing.T) {
	dir := model(t, true)
	out, notes, err := talkTo("Hello\n\nAgain\n/reset\nHello\n/system Be brief\nHello\n/exit\nnever\n", dir, "--temperature", "0", "--max-new-tokens", "5")
	if err != nil {
		t.Fatal(err)
	}
	first := greedy(t, dir, rendered(t, turn{"user", "Hello"}), true, 5)
	second := greedy(t, dir, rendered(t, turn{"user", "Hello"}, turn{"assistant", first}, turn{"user", "Again"}), true, 5)
	system := greedy(t, dir, rendered(t, turn{"system", "Be brief"}, turn{"user", "Hello"}), true, 5)
	if want := first + "\n" + second + "\n" + first + "\n" + system + "\n"; out != want {
		t.Errorf("%q, want %q", out, want)
	}
	if strings.Count(notes, "a new conversation") != 2 || strings.Count(notes, "ended at --max-new-tokens 5") != 4 {
		t.Errorf("notes %q", notes)
	}
}

// Claim: a model without a chat template continues the text, line after line.
func TestTextIsContinued(t *testing.T) {
	dir := model(t, false)
	out, notes, err := talkTo("one two\nthree\n", dir, "--temperature", "0", "--max-new-tokens", "4")
	if err != nil {
		t.Fatal(err)
	}
	first := greedy(t, dir, "one two", false, 4)
	second := greedy(t, dir, "one two"+first+"\nthree", false, 4)
	if out != first+"\n"+second+"\n" || !strings.Contains(notes, "has no chat template") {
		t.Errorf("%q, want %q and %q; notes %q", out, first, second, notes)
	}
}

// Claim (docs/chat.md): where the context is full, the first messages are not sent any more, and a note says so; the
// answer is that of the conversation without them. A message that fills the context alone is not answered.
func TestContextIsFull(t *testing.T) {
	dir := model(t, true)
	words := func(first string) string { return first + strings.Repeat(" word", 30) }
	out, notes, err := talkTo(words("one")+"\n"+words("two")+"\n"+words("three")+"\n"+words("four")+"\n", dir, "--temperature", "0", "--max-new-tokens", "5")
	found := regexp.MustCompile(`the context of \d+ tokens is full: the first (\d+) messages are not sent any more; /reset begins a new conversation`).FindAllStringSubmatch(notes, -1)
	if err != nil || len(found) == 0 {
		t.Fatalf("%v; notes %q", err, notes)
	}
	answers := strings.Split(out, "\n")
	var turns []turn
	for i, first := range []string{"one", "two", "three"} {
		turns = append(turns, turn{"user", words(first)}, turn{"assistant", answers[i]})
	}
	from, _ := strconv.Atoi(found[len(found)-1][1])
	last := greedy(t, dir, rendered(t, append(turns[from:], turn{"user", words("four")})...), true, 5)
	if answers[3] != last {
		t.Errorf("%q, want %q, without the first %d messages", answers[3], last, from)
	}
	_, _, err = talkTo(words("one")+"\n"+strings.Repeat("word ", 2000)+"\n", dir, "--temperature", "0")
	if err == nil || exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), "so the message was not answered") {
		t.Errorf("%v", err)
	}
}

// Claim (docs/chat.md): of a text that the context does not hold, the model sees the end.
func TestLongText(t *testing.T) {
	_, notes, err := talkTo(strings.Repeat("word ", 300)+"\nmore\n", model(t, false), "--temperature", "0")
	if err != nil || !strings.Contains(notes, "tokens is full: the model sees the last") {
		t.Errorf("%v; notes %q", err, notes)
	}
}

// Claim: what is wrong is one error with a code.
func TestRefusals(t *testing.T) {
	with, without := model(t, true), model(t, false)
	empty := filepath.Join(t.TempDir(), "empty.jinja")
	if err := os.WriteFile(empty, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, w := range []struct {
		code  exitcode.Code
		says  string
		in    string
		flags []string
	}{
		{exitcode.Usage, "chat needs one model", "", nil},
		{exitcode.Usage, "--max-new-tokens must be from 1 to ", "", []string{with, "--max-new-tokens", "0"}},
		{exitcode.Usage, "chat needs one model, as in monotron chat tuned/model, but has 2", "", []string{with, "--load", without}},
		{exitcode.NoInput, "", "", []string{filepath.Join(with, "none")}},
		{exitcode.Usage, "--system: the tokenizer of this model has no chat template", "", []string{without, "--system", "x"}},
		{exitcode.Usage, "/system: the tokenizer of this model has no chat template", "/system x\n", []string{without}},
		{exitcode.Usage, "the command /what does not exist", "/what\n", []string{with}},
		{exitcode.BadData, "a line has more than", strings.Repeat("x", mostLine+2), []string{with}},
		{exitcode.NoInput, "--chat-template", "", []string{with, "--chat-template", filepath.Join(with, "none")}},
		{exitcode.BadData, "--chat-template: " + empty + " is empty", "", []string{with, "--chat-template", empty}},
	} {
		_, _, err := talkTo(w.in, w.flags...)
		if err == nil || !strings.Contains(err.Error(), w.says) || exitcode.CodeOf(err) != w.code {
			t.Errorf("%v: code %d, %v; want %d, %s", w.flags, exitcode.CodeOf(err), err, w.code, w.says)
		}
	}
}

// Claim: a command is a slash and letters at the beginning of a line.
func TestCommandOf(t *testing.T) {
	for line, want := range map[string]string{"/exit": "/exit", "/system  a b ": "/system", " /exit": "", "/": "", "/usr/bin is": "", "a /exit": "", "/2": ""} {
		if name, _, is := commandOf(line); name != want || is != (want != "") {
			t.Errorf("%q: %q, want %q", line, name, want)
		}
	}
}

// Claim: --adapter answers with the adapter: not as the base does, and as the model does into which it is
// merged (golden/merge, PEFT 0.21).
func TestAdapter(t *testing.T) {
	from := filepath.Join(golden.Dir(t, "merge"), "gpt2-f32-dora")
	say := func(args ...string) string {
		out, _, err := talkTo("1 2 3\n/reset\n7 5\n", append(args, "--temperature", "0", "--max-new-tokens", "6", "--tokenizer-type", "NullTokenizer", "--vocab-size", "79")...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	base, adapted, merged := say(filepath.Join(from, "base")), say(filepath.Join(from, "base"), "--adapter", filepath.Join(from, "adapter")), say(filepath.Join(from, "merged"))
	if adapted != merged || adapted == base {
		t.Errorf("with the adapter %q, merged %q, the base %q", adapted, merged, base)
	}
}
