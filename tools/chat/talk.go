package chat

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/inference"
	"monotron/tokenizer/chat"
	"monotron/tools/internal/answering"
	"monotron/tools/internal/command"
)

// turn is what somebody said.
type turn struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// talk is a conversation with a model.
type talk struct {
	*answering.Model
	batcher    *inference.Batcher
	options    options
	out, notes *command.Printer
	capacity   int // tokens of context and answer together

	turns     []turn // without the system text
	forgotten int    // the first turns that are not sent any more: the context has no space for them
	text      string // of a model without a chat template: all so far
	answers   uint32 // so far
}

// tokensOfText is the length of a continuation that nobody asked for.
const tokensOfText = 128

func newTalk(m *answering.Model, b *inference.Batcher, o options, out, notes *command.Printer) (*talk, error) {
	t := &talk{Model: m, batcher: b, options: o, out: out, notes: notes, capacity: b.Stats().Blocks * device.PagedBlock}
	if m.Context > 0 {
		t.capacity = min(t.capacity, m.Context)
	}
	switch {
	case m.Tok == nil:
		return nil, exitcode.Errorf(exitcode.Usage, "%s has no tokenizer; give --tokenizer-type and its files", o.dir)
	case m.NoChat != nil && (exitcode.CodeOf(m.NoChat) != exitcode.Usage || o.template != ""):
		return nil, m.NoChat
	case m.NoChat != nil && o.system != "":
		return nil, exitcode.Errorf(exitcode.Usage, "--system: %w", m.NoChat)
	case m.NoChat != nil:
		notes.Printf("%s has no chat template: the model continues the text that you type\n", o.dir)
	}
	return t, nil
}

// run answers line after line. Questions from a file that cannot be answered end it with an error.
func (t *talk) run(ctx context.Context, in *lines) error {
	in.begin()
	if in.interactive() {
		t.notes.Printf("context: %d tokens; /help lists commands, Ctrl-C stops an answer, /exit or Ctrl-D ends\n", t.capacity)
	}
	for {
		// A command, an empty line, or a question.
		line, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			return t.failed()
		case err != nil:
			return err
		}
		if name, rest, is := commandOf(line); is {
			end, err := t.command(name, rest)
			if end || err != nil && !in.interactive() {
				return errors.Join(err, t.failed())
			}
			if err != nil {
				t.notes.Printf("%v\n", err)
			}
			continue
		}
		if strings.TrimSpace(line) == "" {
			continue
		}
		// Ctrl-C stops the answer, not the program.
		answering, done := in.interruptible(ctx)
		err = t.answer(answering, line)
		done()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && (!in.interactive() || t.failed() != nil) {
			return err
		}
		if err != nil {
			t.notes.Printf("%v\n", err)
		}
	}
}

// failed is why nothing can be written any more.
func (t *talk) failed() error { return errors.Join(t.out.Err, t.notes.Err) }

// answer prints the answer to a question as it comes, and takes both into the conversation. An answer
// that ctx stops is kept as far as it came.
func (t *talk) answer(ctx context.Context, question string) error {
	// As much of the conversation as the context holds, and what is left for the answer.
	ids, err := t.fitting(question)
	if err != nil {
		return err
	}
	left := t.capacity - len(ids)
	most := left
	if t.NoChat != nil {
		most = min(left, tokensOfText)
	}
	if t.options.most > 0 {
		most = min(left, t.options.most)
	}
	// One request, printed as it comes.
	r := &inference.Request{Prompt: ids, Sampling: t.options.sampling, MaxNew: most, Ends: t.Ends, LogProbs: -1, Tokenizer: t.Tok, Adapter: len(t.options.load.Adapters)}
	r.Number = t.answers
	t.answers++
	streams, err := t.batcher.Submit(r)
	if err != nil {
		return err
	}
	text, end, err := t.print(ctx, streams[0])
	if err != nil {
		// An answer that was stopped before its first token leaves no turn.
		return err
	}
	if text != "" || end.Ended != inference.EndedByCancel {
		t.keep(question, text)
	}
	t.tell(end, most, left)
	return t.failed()
}

// reserve is how many tokens an answer has at least.
func (t *talk) reserve() int {
	most := max(8, t.capacity/4)
	switch {
	case t.options.most > 0:
		return min(most, t.options.most)
	case t.NoChat != nil:
		return min(most, tokensOfText)
	}
	return most
}

// fitting is the ids of the conversation with a question, without its first turns, or the text's beginning, where
// the context does not hold them. What is left out stays left out, with a note.
func (t *talk) fitting(question string) ([]int32, error) {
	// A text without turns: its last tokens.
	if t.NoChat != nil {
		ids, err := t.Encode(t.continued(question), false)
		if last := max(1, t.capacity-t.reserve()); err == nil && len(ids) > last {
			t.notes.Printf("the context of %d tokens is full: the model sees the last %d of %d tokens\n", t.capacity, last, len(ids))
			ids = ids[len(ids)-last:]
		}
		return ids, err
	}
	// A question and its answer less, until there is space for another answer.
	from := t.forgotten
	ids, err := t.prompt(question, from)
	for err == nil && len(ids)+t.reserve() > t.capacity && from < len(t.turns) {
		from += 2
		ids, err = t.prompt(question, from)
	}
	switch {
	case err != nil:
		return nil, err
	case len(ids) >= t.capacity:
		return nil, exitcode.Errorf(exitcode.BadData, "the message has %d tokens but the context has only %d, so the message was not answered; shorten it", len(ids), t.capacity)
	case from > t.forgotten:
		t.forgotten = from
		t.notes.Printf("the context of %d tokens is full: the first %d messages are not sent any more; /reset begins a new conversation\n", t.capacity, from)
	}
	return ids, nil
}

// prompt is the ids of the conversation from a turn on, with a question.
func (t *talk) prompt(question string, from int) ([]int32, error) {
	var messages []json.RawMessage
	all := append(append([]turn(nil), t.turns[from:]...), turn{"user", question})
	if t.options.system != "" {
		all = append([]turn{{"system", t.options.system}}, all...)
	}
	for _, one := range all {
		text, err := json.Marshal(one)
		if err != nil {
			return nil, exitcode.With(exitcode.Internal, err)
		}
		messages = append(messages, text)
	}
	text, err := t.Template.Render(messages, chat.Options{AddGenerationPrompt: true})
	if err != nil {
		return nil, exitcode.Errorf(exitcode.BadData, "the chat template: %w", err)
	}
	return t.Encode(text, true)
}

// continued is the text of a model without a chat template, with what was typed behind a line break.
func (t *talk) continued(line string) string {
	if t.text == "" {
		return line
	}
	return t.text + "\n" + line
}

// keep takes a question and its answer into the conversation.
func (t *talk) keep(question, answer string) {
	if t.NoChat != nil {
		t.text = t.continued(question) + answer
		return
	}
	t.turns = append(t.turns, turn{"user", question}, turn{"assistant", answer})
}

// print shows an answer as it comes; a ctx that ends stops it.
func (t *talk) print(ctx context.Context, s *inference.Stream) (text string, end inference.Result, err error) {
	for end.Ended == "" {
		end, err = s.Next(ctx)
		if err != nil && ctx.Err() == nil {
			return text, end, err
		}
		part := end.Rest
		for i := len(end.Tokens) - 1; i >= 0; i-- {
			part = end.Tokens[i].Text + part
		}
		if t.out.Printf("%s", part); t.out.Err != nil {
			s.Cancel()
			return text, end, t.out.Err
		}
		text += part
	}
	t.out.Printf("\n")
	return text, end, nil
}

// tell says why an answer ended early.
func (t *talk) tell(end inference.Result, most, left int) {
	switch {
	case end.Ended == inference.EndedByCancel:
		t.notes.Printf("stopped\n")
	case end.Ended == inference.EndedByLength && most == left:
		t.notes.Printf("the answer is incomplete: the context of %d tokens is full\n", t.capacity)
	case end.Ended == inference.EndedByLength && t.NoChat == nil:
		t.notes.Printf("the answer was ended at --max-new-tokens %d\n", most)
	}
}
