// Package chat writes a conversation as the text a model was trained on, by the template
// (Jinja) in its tokenizer's folder, as transformers' apply_chat_template does.
//
// Reading order: source.go (where a template comes from), template.go (rendering), messages.go
// (what transformers does to messages before a template sees them), continue.go (texts that end
// inside the last message). Templates themselves are the subject of the package jinja.
package chat
