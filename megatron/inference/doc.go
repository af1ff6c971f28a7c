// Package inference generates text: keys and values that are kept, sampling (greedy,
// temperature, top-k, top-p, penalties), beam search, and many texts at once.
//
// Reading order: load.go (a checkpoint to a model), ranks.go (ranks of one process that
// share it), session.go (a generator and its KV cache), forward.go (a pass), then what asks
// for passes: sample.go (choose.go: the next token), beam.go, logits.go. For a server:
// request.go (a text on its way), blocks.go (who owns which keys and values), batcher.go
// (what the next pass takes), rows.go (the pass), serve.go (the ranks of a server), orders.go
// (how they follow rank 0), editions.go (weights that change meanwhile).
package inference
