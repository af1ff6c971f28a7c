// Package megatron is what Megatron-LM's two checkpoint formats share: its
// arguments as a model, the way it cuts tensors over ranks and layers over
// stages, the order of its optimizers' parameters and of its gradient buckets,
// and the state saved with the tensors. Source: megatron/training/checkpointing.py,
// megatron/core/distributed/param_and_grad_buffer.py and
// megatron/core/optimizer of Megatron-LM, commit d98e8a64.
//
// Reading order: args.go, names.go, cut.go (one tensor on one rank), grid.go
// (all ranks), params.go (optimizer order), buckets.go (distributed optimizer),
// state.go, rng.go.
package megatron
