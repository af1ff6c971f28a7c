// Package ref is the plain Go device: the oracle that every other device is
// compared with, and what trains without a C compiler.
//
// One rule holds everywhere: values are widened to float64, the formula is
// computed as the paper writes it, sums run in index order, and what is stored
// is rounded once. All dtypes may be F64, statistics too, so that finite
// differences see no rounding. Rows are spread over the pool; no sum crosses
// tiles, so the number of threads changes nothing.
//
// Reading order: ref.go (the backend), tensor.go (elements to and from float64), then the
// ops, one file a kind: matmul.go, elementwise.go, activation.go, norm.go, rope.go,
// embedding.go, dropout.go, attention.go and attention_backward.go, crossentropy.go,
// stats.go (of gradients, and what of them skips a step), optimizer.go, router.go, experts.go.
package ref
