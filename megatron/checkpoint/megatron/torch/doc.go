// Package torch reads and writes Megatron-LM's older checkpoint format
// (--ckpt-format torch): one file of torch.save a model-parallel rank, holding
// that rank's shards under local names.
//
//	<save>/latest_checkpointed_iteration.txt
//	<save>/iter_0000100/mp_rank_TT[_PPP][_EEE]/model_optim_rng.pt
//	                                          /distrib_optim.pt
//
// Any layout is read into global tensors, and any is written. Elements stay in
// the files until a box of them is asked for.
//
// Reading order: folder.go (files of the grid), read.go (values), optimizer.go
// (main parameters and moments), write.go.
package torch
