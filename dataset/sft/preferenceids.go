package sft

import (
	"encoding/json"
	"slices"

	"monotron/tokenizer"
)

// answered is an answer with its prompt as tokens, not yet truncated; the answer begins at from.
type answered struct {
	ids  []int32
	from int
}

// tokens are the answers of a line, by the rule.
func (r *renderer) tokens(a *answers) (list []answered, err error) {
	for i := range a.list {
		var one answered
		if r.config.Rule == RuleORPO {
			one, err = r.asText(a, &a.list[i])
		} else {
			one, err = r.asGiven(a, &a.list[i])
		}
		if err == nil {
			err = r.check(one.ids)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, one)
	}
	if r.config.Rule == RuleDPO { // both answers begin where the first of them leaves the prompt
		from := min(list[0].from, list[1].from)
		list[0].from, list[1].from = from, from
	}
	return list, nil
}

// asGiven renders texts as they are and messages by the template; the answer begins where the ids
// of the prompt and those of prompt and answer part.
func (r *renderer) asGiven(a *answers, answer *passage) (out answered, err error) {
	var prompt []int32
	if a.prompt.messages != nil {
		prompt, out.ids, err = r.conversationParts(&a.row, a.prompt.messages, answer.messages)
	} else {
		prompt, out.ids, err = r.textParts(a.prompt.text, answer.text)
	}
	out.from = common(prompt, out.ids)
	return out, err
}

// asText renders messages to text, and gives texts the tokens for beginning and end of a sequence,
// unless they are there. The answer begins after the prompt's ids, or one token earlier where the
// prompt's last token is another one with the answer behind it.
func (r *renderer) asText(a *answers, answer *passage) (out answered, err error) {
	before, after := a.prompt.text, answer.text
	if a.prompt.messages != nil {
		if before, after, err = r.renderedParts(a, answer); err != nil {
			return out, err
		}
	}
	prompt, err := tokenizer.AppendPlain(r.tok, nil, before)
	if err != nil {
		return out, fieldError("prompt", "%w", err)
	}
	if out.ids, err = tokenizer.AppendPlain(r.tok, nil, before+after); err != nil {
		return out, fieldError("prompt", "prompt and answer together: %w", err)
	}
	out.from = len(prompt)
	if common(prompt, out.ids) < len(prompt) {
		out.from = min(len(prompt)-1, len(out.ids))
	}
	if bos := r.config.BOSID; bos >= 0 && (out.from == 0 || out.ids[0] != bos) {
		out.ids, out.from = slices.Insert(out.ids, 0, bos), out.from+1
	}
	if eos := r.config.EOSID; eos >= 0 && (out.from == len(out.ids) || out.ids[len(out.ids)-1] != eos) {
		out.ids = append(out.ids, eos)
	}
	return out, nil
}

// renderedParts are prompt and answer as text: the prompt is what its own text and the text of all
// messages, with either answer, begin with.
func (r *renderer) renderedParts(a *answers, answer *passage) (before, after string, err error) {
	t, err := r.template()
	if err != nil {
		return "", "", err
	}
	o := r.options(&a.row, true)
	if roleOf(a.prompt.messages[len(a.prompt.messages)-1]) == "assistant" { // the answer continues it
		o.AddGenerationPrompt, o.ContinueFinalMessage = false, true
	}
	if before, err = t.Render(a.prompt.messages, o); err != nil {
		return "", "", fieldError("prompt", "the chat template: %w", err)
	}
	var full string
	for i := range a.list {
		text, err := t.Render(slices.Concat(a.prompt.messages, a.list[i].messages), r.options(&a.row, false))
		if err != nil {
			return "", "", fieldError(answerNames[i], "the chat template: %w", err)
		}
		before = before[:commonText(before, text)]
		if &a.list[i] == answer {
			full = text
		}
	}
	return before, full[len(before):], nil
}

// answerNames are the fields of a pair.
var answerNames = []string{"chosen", "rejected"}

// commonText is the length of the beginning that two texts share, in bytes; it ends with a
// character.
func commonText(a, b string) int {
	n := 0
	for i, c := range a {
		end := i + len(string(c))
		if end > len(b) || a[i:end] != b[i:end] {
			return n
		}
		n = end
	}
	return n
}

// conversationParts are the ids of a prompt with the generation prompt, and of all messages.
func (r *renderer) conversationParts(row *row, prompt, answer []json.RawMessage) (before, all []int32, err error) {
	t, err := r.template()
	if err != nil {
		return nil, nil, err
	}
	text, err := t.Render(prompt, r.options(row, true))
	if err != nil {
		return nil, nil, fieldError("prompt", "the chat template: %w", err)
	}
	full, err := t.Render(slices.Concat(prompt, answer), r.options(row, false))
	if err != nil {
		return nil, nil, fieldError("prompt", "prompt and answer together: the chat template: %w", err)
	}
	if before, err = tokenizer.AppendPlain(r.tok, nil, text); err != nil {
		return nil, nil, fieldError("prompt", "%w", err)
	}
	if all, err = tokenizer.AppendPlain(r.tok, nil, full); err != nil {
		return nil, nil, fieldError("prompt", "prompt and answer together: %w", err)
	}
	return before, all, nil
}

// textParts are the ids of a prompt, and of prompt and answer with the end-of-sequence token.
func (r *renderer) textParts(prompt, answer string) (before, all []int32, err error) {
	if before, err = r.tok.Encode(prompt); err != nil {
		return nil, nil, fieldError("prompt", "%w", err)
	}
	if all, err = r.encode(prompt + r.ended(answer)); err != nil {
		return nil, nil, fieldError("completion", "%w", err)
	}
	return before, all, nil
}
