// Package layouts proves that no layout of ranks changes the maths: it trains one
// small model under every legal layout and compares losses, every step's gradients,
// gradient norm, weights, residual streams and consumed samples with those of one
// rank. And it proves the proof: it breaks one collective, one random stream, one
// padded column at a time and expects to see it.
//
// Reading order: model.go (the small model), legal.go (which layouts), trial.go
// (training under one), observe.go (what its passes show), tensors.go (complete tensors
// from the ranks' pieces), compare.go, locate.go (where a difference starts),
// mutants.go, print.go, picture.go.
package layouts
