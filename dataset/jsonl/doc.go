// Package jsonl reads lines of text, and JSON objects in them, as Python's text
// mode and json module do: lines end at \n, \r\n or a lone \r; NaN is a number;
// of equal keys the last one counts.
//
// Reading order: lines.go (a file's lines), packed.go (files that are packed, or hold rows in another form),
// parse.go (a value), kernel.go (strings without their escapes, in C; nokernel.go without), text.go (whether
// all strings of a value are text).
package jsonl
