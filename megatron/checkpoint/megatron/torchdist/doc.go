// Package torchdist reads and writes Megatron-LM's sharded checkpoint format
// (--ckpt-format torch_dist, megatron/core/dist_checkpointing over
// torch.distributed.checkpoint):
//
//	<save>/iter_0000100/metadata.json   marks a complete checkpoint
//	                    .metadata       a pickle: chunks of tensors, and where they lie
//	                    __R_N.distcp    chunks back to back, each a file of torch.save
//	                    common.pt       what is not sharded; newer ones keep it as an object
//
// Tensors are global and layers are stacked, so a reader needs no layout, but
// for the flat buffers of the distributed optimizer (dp_reshardable).
//
// Reading order: readmetadata.go (the pickle, checked), read.go (model tensors),
// optimizer.go (moments), chunk.go (bytes), write.go, describe.go (the pickle,
// written).
package torchdist
