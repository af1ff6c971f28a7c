// Package schema keeps a model's text within a JSON schema: it compiles a schema to a grammar of
// bytes, follows a text through it, and says which tokens may come next. What a schema says and
// the grammar cannot hold to is refused by name, so that every text that ends is valid.
//
// Read compile.go (what of JSON schema is understood), grammar.go (nodes and how a text goes
// through them), vocabulary.go (from bytes to tokens), spell.go (whether the
// tokens can write a text of the grammar), guide.go (one text on its way).
package schema
