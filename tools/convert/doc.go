// Package convert is the command convert: a checkpoint of any format and layout
// becomes one of another.
//
// Reading order: convert.go, options.go (flags, checked), view.go (the input as the output
// will hold it), verify.go (that both give the same logits).
package convert
