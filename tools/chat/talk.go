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
	room       int // tokens of context and answer together

	turns   []turn // without the system text
	text    string // of a model without a chat template: all so far
	answers uint32 // so far
}

// tokensOfText is the length of a continuation that nobody asked for.
const tokensOfText = 128

func newTalk(m *answering.Model, b *inference.Batcher, o options, out, notes *command.Printer) (*talk, error) {
	t := &talk{Model: m, batcher: b, options: o, out: out, notes: notes, room: b.Stats().Blocks * device.PagedBlock}
	if m.Context > 0 {
		t.room = min(t.room, m.Context)
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
		t.notes.Printf("context: %d tokens; /help lists commands, Ctrl-C stops an answer, /exit or Ctrl-D ends\n", t.room)
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
	// The conversation so far as tokens, and what room is left for the answer.
	ids, err := t.prompt(question)
	if err != nil {
		return err
	}
	left := t.room - len(ids)
	if left < 1 {
		return exitcode.Errorf(exitcode.BadData, "the conversation has %d tokens and the context %d: this was not answered; /reset begins a new conversation", len(ids), t.room)
	}
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

// prompt is the ids of the conversation with a question.
func (t *talk) prompt(question string) ([]int32, error) {
	if t.NoChat != nil {
		return t.Encode(t.continued(question), false)
	}
	var messages []json.RawMessage
	all := append(append([]turn(nil), t.turns...), turn{"user", question})
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

// tell says why an answer ended early, and that the context is nearly full.
func (t *talk) tell(end inference.Result, most, left int) {
	rest := left - end.Generated
	switch {
	case end.Ended == inference.EndedByCancel:
		t.notes.Printf("stopped\n")
	case end.Ended == inference.EndedByLength && most == left:
		t.notes.Printf("the answer is cut: the context of %d tokens is full; /reset begins a new conversation\n", t.room)
	case end.Ended == inference.EndedByLength && t.NoChat == nil:
		t.notes.Printf("the answer is cut at --max-new-tokens %d\n", most)
	case rest < t.room/8:
		t.notes.Printf("%d tokens of the context of %d are left; /reset begins a new conversation\n", rest, t.room)
	}
}
