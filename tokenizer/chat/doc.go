// Package chat writes a conversation as the text a model was trained on, by the template
// (Jinja) that lies beside its tokenizer, as transformers' apply_chat_template does.
//
// Reading order: source.go (where a template comes from), template.go (rendering), then what
// transformers' templates expect beyond the library: values.go (objects keep the order of
// their keys), filters.go.
package chat
