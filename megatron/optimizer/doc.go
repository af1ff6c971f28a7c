// Package optimizer updates parameters: its settings, the schedules of learning
// rate and weight decay, the loss scale, the memory of parameters, gradients and
// moments, how data-parallel ranks share them, and the update itself.
//
// Reading order: config.go, schedule.go (learning rate), scaler.go (loss scale); family.go (which ranks share
// which parameters), sharding.go (the strategies), layout.go (the flat buffer, its buckets and their shards),
// memory.go, reduce.go (sums of gradients over ranks), optimizer.go (the step), runs.go (the segments that one
// call of the update's op takes), codes.go (moments of 8 bits), schedulefree.go (weights that are averages
// between steps), muon.go, adaptive.go and matrices.go (Muon: a matrix is assembled from its shards for the
// update), gather.go (parameters gathered: after the update, and under ZeRO-3 wherever a layer uses them),
// ahead.go (gathered before they are used), offloaded.go (state that is offloaded to files or to the host's
// memory), parts.go (which parameters' state that is), carry.go (a bucket copied there and back), stored.go
// (what a checkpoint keeps, as pieces of global tensors).
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
// `last` says that this micro-batch's backward is the stage's last of the step.
// Without the hooks NoShard and Optim still work, but nothing overlaps. ZeRO-2 needs
// the hooks Accumulate and Gradients; ZeRO-3 and OverlapParamGather also need Use and
// Done, in evaluation too. To read parameters outside of the hooks, call Weights, not
// Param.Value.
//
// Invariants
//   - Every rank of a data-parallel group calls the hooks in the same order: they
//     communicate. Step and ParamsNorm are calls of all ranks of the world.
//   - Param.Value, Grad and Main are set only while the rank has the complete tensor:
//     Value always, except under ZeRO-3; Grad always, except under ZeRO-2 and 3; Main
//     if nothing is sharded, and in f32, where it is Value.
//   - Under ZeRO-1, outside this rank's shard Grad holds sums of this rank alone.
//     The step's final gradients are those of Gradients.
//   - Sums run in rank order, shards are cut by shape: a run repeats bit for bit,
//     and with exact sums every sharding gives the same bits.
//   - Gradients of data-parallel ranks are summed, not averaged; the update itself
//     applies the factor, so that no extra pass over the gradients does.
package optimizer
