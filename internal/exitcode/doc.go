// Package exitcode is the one shape of error a user meets: what happened, where,
// what to do, and the process exit code that belongs to it (docs/exit-codes.md).
// It rests on nothing else of ours, so that every package can use it.
//
// Reading order: exitcode.go (codes, and errors that carry one), words.go (a message's text, which a
// test scrambles), read.go (small files that somebody else wrote), json.go (JSON in them).
package exitcode
