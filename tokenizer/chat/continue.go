package chat

import (
	"errors"
	"slices"
	"strings"
	"unicode"

	"monotron/tokenizer/chat/jinja"
)

// tag marks the end of the message to continue with while the template is rendered; it is that of
// transformers.
const tag = "CONTINUE_FINAL_MESSAGE_TAG "

// continuation is a text that the model is to continue with.
type continuation struct{ text string }

// continued marks the end of the last message's content: of a list, that of its last text.
func (t *Template) continued(turns []*jinja.Dict, o Options) (*continuation, error) {
	if o.AddGenerationPrompt {
		return nil, errors.New("continue_final_message and add_generation_prompt cannot both be set")
	}
	if _, text := t.chosen(o.Tools); !strings.Contains(text, "content") {
		return nil, errors.New("continue_final_message: the chat template does not read the field content")
	}
	last := turns[len(turns)-1]
	// The content is a text, or a list whose last text counts.
	switch content := last.Get("content").(type) {
	case nil:
		return nil, errors.New("continue_final_message: the last message has no content")
	case string:
		last.Set("content", content+tag)
		return &continuation{content}, nil
	case *jinja.List:
		for _, part := range slices.Backward(content.Items()) {
			d, is := part.(*jinja.Dict)
			if !is {
				break
			}
			if text, is := d.Get("text").(string); is {
				d.Set("text", text+tag)
				return &continuation{text}, nil
			} else if d.Get("text") != nil {
				break
			}
		}
		return nil, errors.New("continue_final_message: the last message has no text to continue")
	}
	return nil, errors.New("continue_final_message: the last message's content is not text")
}

// cut ends a rendered text where the message ends. Where the template has trimmed the message,
// so is the result.
func (c *continuation) cut(text string) (string, error) {
	mark := strings.TrimSpace(tag)
	at := strings.LastIndex(text, mark)
	if at < 0 || !strings.Contains(text, strings.TrimFunc(c.text, isSpace)) {
		return "", errors.New("continue_final_message: the last message does not appear in the text that the chat template writes")
	}
	if strings.HasPrefix(text[at:], tag) {
		return text[:at], nil
	}
	return strings.TrimRightFunc(text[:at], isSpace), nil
}

// isSpace is what Python strips.
func isSpace(c rune) bool { return unicode.IsSpace(c) || c >= 0x1c && c <= 0x1f }
