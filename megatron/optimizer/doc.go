// Package optimizer updates parameters: its settings, the schedules of learning
// rate and weight decay, the loss scale, the memory of parameters, gradients and
// moments, how data-parallel ranks share them, and the update itself.
//
// Reading order: config.go, schedule.go (learning rate), scaler.go (loss scale); family.go (which ranks share
// which parameters), sharding.go (the strategies), layout.go (the flat buffer, its buckets and their shards),
// memory.go, reduce.go (gradients over ranks), optimizer.go (the step), runs.go (what one call of it
// updates), codes.go (moments of 8 bits), schedulefree.go (weights that are averages between steps), muon.go,
// adaptive.go and matrices.go (matrices, of which a rank needs more than it updates), gather.go (parameters
// brought together: after the update, under ZeRO-3 wherever a layer uses them), ahead.go (and before that),
// elsewhere.go (what is offloaded to files or to the host's memory), parts.go (and how much of it), carry.go (a
// bucket on its way there and back), stored.go (what a checkpoint keeps, as pieces of global tensors).
//
// One rank of a training run, in order:
//
//	o := optimizer.New(d, config, params, dtype, groups, sharding) // memory
//	o.Initialize(seed)                                             // or load into Weights and Stored
//	for each step {
//		o.ZeroGrad()
//		for each micro-batch and stage {
//			h := o.Hooks(last) // into the pass: Use, Done, Accumulate, Gradients
//			forward, backward
//		}
//		result, err := o.Step(args)
//	}
//
// `last` says that the stage has no backward after this micro-batch's. Without
// the hooks NoShard and Optim still work, nothing overlapping; ZeRO-2 needs
// Accumulate and Gradients, ZeRO-3 and OverlapParamGather also Use and Done,
// in evaluation too. Whoever reads Param.Value outside of them asks Weights.
//
// Invariants
//   - Every rank of a data-parallel group calls the hooks in the same order: they
//     communicate. Step and ParamsNorm are calls of all ranks of the world.
//   - Param.Value, Grad and Main are given only while the complete tensor is here:
//     Value always but under ZeRO-3, Grad always but under ZeRO-2 and 3, Main where
//     nothing is sharded, or in f32 where it is Value.
//   - Under ZeRO-1, outside this rank's shard Grad holds sums of this rank alone.
//     The step's final gradients are those of Gradients.
//   - Sums run in rank order, shards are cut by shape: a run repeats bit for bit,
//     and with exact sums every sharding gives the same bits.
//   - Gradients of data-parallel ranks are added up; the update divides by a factor,
//     no pass over them does.
package optimizer
