// Package comm is how ranks talk. A rank owns its Groups and passes them to
// whatever needs them; nothing here is global. What ranks do together is a value, a
// Collective; a Group has the calls and the one check of their tensors; an Engine, with
// one method, carries them out:
//
//	inproc   ranks that are goroutines of one process
//	process  ranks that are processes, over shared memory, Gloo or TCP
//	nccl     ranks with a GPU each, over NCCL
//
// Who chooses: Run in mpu/ranks/ranks.go, whether ranks are goroutines or processes; Carry
// in mpu/comm/nccl/carrier.go, of processes, whether NCCL carries their tensors; links.offer
// in mpu/comm/process/transport.go, what carries bytes between two processes.
//
// An engine may wrap another: to record its calls (mpu/health), to break them on purpose
// (mpu/health/inject), or to copy tensors through the host's memory (Staged). inproc and
// process add in rank order (mpu/comm/reduce), so that a run repeats bit for bit; NCCL has an
// order of its own.
//
// Reading order: collective.go (what ranks do together), group.go (the calls and their check), solo.go (a
// group of one rank), imagined.go (a rank whose peers do not exist, for plans), ledger.go (calls as ledgers
// and errors describe them; how two ranks' calls differ), stage.go (tensors in memory that the host cannot
// read), carrier.go (what carries a rank's tensors), words.go (each rank's text to all). Then the engines,
// each from its doc.go.
//
// Who detects a failure: a tensor of a wrong shape or dtype is a bug of one rank and panics in
// Group.Start. If ranks call different things, the engine that receives the bytes returns a
// Mismatch. A rank that died, or does not come in time, is detected by the engine's world. Both
// end the world: from then on every Wait returns the same error. mpu/health makes the verdict.
package comm
