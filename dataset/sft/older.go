package sft

import (
	"encoding/json"
)

// shareGPT has the roles of ShareGPT's rows.
var shareGPT = map[string]string{"human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant", "chatgpt": "assistant", "bing": "assistant", "bard": "assistant",
	"model": "assistant", "system": "system", "tool": "tool", "function": "tool", "observation": "tool"}

// conversations reads ShareGPT's rows: a list of {from, value}, or of messages, with an optional
// a system text with it.
func (f fields) conversations() (*row, error) {
	const field = "conversations"
	var list []map[string]json.RawMessage
	var texts []json.RawMessage // the same turns, with their members in order
	if json.Unmarshal(f[field], &list) != nil || json.Unmarshal(f[field], &texts) != nil {
		return nil, fieldError(field, "the value is not a list of objects")
	}
	r := &row{kind: conversation}
	// A system text of the row comes first.
	system, err := f.optional("system")
	if err != nil {
		return nil, err
	}
	if system != "" {
		r.messages = append(r.messages, message("system", system))
	}
	for i, m := range list {
		// A turn that has a role is a message already.
		if fields(m).has("role") {
			r.messages = append(r.messages, texts[i])
			continue
		}
		// A turn of ShareGPT: who speaks, and the text.
		var from, value string
		if !fields(m).has("value") || json.Unmarshal(m["from"], &from) != nil || json.Unmarshal(m["value"], &value) != nil {
			return nil, fieldError(field, "turn %d needs the strings \"from\" and \"value\"", i)
		}
		role := shareGPT[from]
		if role == "" {
			return nil, fieldError(field, "turn %d has the value %.40q in \"from\"; it must be human, gpt, system or tool", i, from)
		}
		r.messages = append(r.messages, message(role, value))
	}
	if len(list) == 0 {
		return nil, fieldError(field, "the list is empty")
	}
	// The list passes the checks of messages.
	raw, err := json.Marshal(r.messages)
	if err != nil {
		return nil, fieldError(field, "%v", err)
	}
	_, err = messageList(field, raw)
	return r, err
}

func message(role, content string) json.RawMessage {
	m, _ := json.Marshal(struct { // two texts: it has a JSON form
		Role    string `json:"role"`
		Content string `json:"content"`
	}{role, content})
	return m
}

// The texts that Stanford's Alpaca puts around an instruction.
const (
	alpacaInput = "Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.\n\n### Instruction:\n"
	alpacaPlain = "Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n### Instruction:\n"
)

// alpaca reads instruction, input and output: a conversation where there is a chat template, else
// Alpaca's prompt and the answer.
func (f fields) alpaca(template bool) (*row, error) {
	var texts [4]string
	for i, name := range []string{"instruction", "input", "output", "system"} {
		var err error
		if texts[i], err = f.optional(name); err != nil {
			return nil, err
		}
	}
	instruction, input, output, system := texts[0], texts[1], texts[2], texts[3]
	if !template {
		r := &row{kind: promptText, completion: output, prompt: alpacaPlain + instruction}
		if input != "" {
			r.prompt = alpacaInput + instruction + "\n\n### Input:\n" + input
		}
		r.prompt += "\n\n### Response:\n"
		return r, nil
	}
	r := &row{kind: conversation}
	if system != "" {
		r.messages = append(r.messages, message("system", system))
	}
	if input != "" {
		instruction += "\n" + input
	}
	r.messages = append(r.messages, message("user", instruction), message("assistant", output))
	return r, nil
}
