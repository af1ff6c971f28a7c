// Package inference generates text: KV cache, sampling (greedy, temperature, top-k, top-p,
// penalties), beam search, and continuous batching of many texts.
//
// Reading order: load.go (a checkpoint to a model), ranks.go (ranks of one process that share it), blocks.go
// (who owns which keys and values), forward.go (a pass), rows.go (a pass over rows of several texts),
// session.go (a generator, and texts that it extends together), then what asks for passes: sample.go
// (choose.go: the next token), beam.go, logits.go. For a server, or a training run (continue.go): request.go
// (a text on its way), batcher.go (texts from their arrival to their end), plan.go (what the next pass
// takes), serve.go (the ranks of a server), orders.go (how they follow rank 0), editions.go (weights that
// change meanwhile), adapters.go (the same weights with adapters).
package inference
