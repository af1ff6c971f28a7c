// Package jinja renders templates of Jinja2 3.1 over values of Python, with the settings that
// transformers gives its chat templates: trim_blocks, lstrip_blocks, loop controls, generation
// blocks, the immutable sandbox, and tojson as json.dumps.
//
// Reading order: lexer.go and parse_*.go (text to nodes), symbols.go (which name a frame owns,
// as Jinja's idtracking), compile_*.go (nodes to Go functions over slots, as Jinja compiles to
// Python functions over locals), value.go and what works on values: operators.go, compare.go,
// index.go, attribute.go, iterate.go, repr.go, filters_*.go, tests.go, methods_*.go, format_*.go.
//
// Invariants:
//   - What Python answers is answered equally, or the render ends with an error. What depends on
//     memory addresses, hash seeds or chance is refused (class "Unsupported").
//   - A render is bounded by counts of its own (budget.go), never by a clock: steps, bytes made,
//     bytes written, depth. Whatever allocates or loops charges before it does.
//   - Inside the package an error is a panic with *Error, as in encoding/json; Parse and
//     Template.Render recover it. A runtime error becomes an *Error of class InternalError, which the tests
//     find.
//   - Values are never changed once made, but for namespaces, loops, cyclers and joiners.
package jinja
