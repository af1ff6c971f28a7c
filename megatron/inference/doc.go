// Package inference generates text: a KV cache that grows by each pass,
// sampling (greedy, temperature, top-k, top-p) and beam search.
//
// Reading order: load.go (a checkpoint to a model), ranks.go (ranks of one process that
// share it), session.go (a generator and its KV cache), forward.go (a pass), then what asks
// for passes: sample.go, beam.go, logits.go.
package inference
