// Package nccl is the engine of ranks that have a GPU each: collectives are enqueued on
// streams of NCCL's communicators, and the host continues. Ranks meet, and barriers are
// made, over the groups of a host's world.
//
// Reading order: carrier.go (whether NCCL or the host carries a rank's tensors), world.go
// (the communicators of a rank), communicator.go (what is under way in one), group.go (a
// collective on its stream), tree.go (sums in an order that NCCL does not have).
//
// Who sees a failure: World.watch, every 20 ms: a call that is not done in time, a
// communicator in trouble, the host's world at its end. It gives up all communicators, and
// reports it to the host's world, so that peers do the same.
package nccl
