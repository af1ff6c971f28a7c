// Package device is the seam between the trainer and whatever does its
// arithmetic.
//
// Reading order: tensor.go (what an op sees), op.go and op_*.go (every op's description: arguments, shapes,
// work), known.go (what a device may be asked for), device.go (how a call travels), arena.go (where memory
// comes from), elsewhere.go (what lies in no memory of the device), pool.go (who works on a CPU), graph.go
// (work enqueued as one), streams.go, trail.go (how far a device has come), table.go with device.h (the C
// side), library.go (a device of another library: CUDA; librarygraphs.go, librarystreams.go). ops.go and
// ops.h are made of the descriptions by go generate. philox.go has the random numbers, convert.go the dtypes'
// values, peak.go what a device can do at most, instructions.go what its processor can, counting.go a device
// without memory, on which a plan is counted, outofmemory.go the error when the arena is empty, fused.go
// whether a vendor's attention serves a call.
//
// Invariants
//   - A call is a complete op. Argument structs have the same layout in Go and in
//     C (ops.h), so nothing is translated on the way.
//   - Ops only enqueue; values reach the host by Read alone, which waits.
//   - What changes from step to step (learning rate, loss scale, clip factor,
//     step number) is read through a Tensor, never passed by value.
//   - A result depends on the inputs and shapes only: work is cut and sums are
//     ordered by shape, whatever the number of threads, ranks or the load.
//   - A device is called with nothing that it does not say it knows: a value of an
//     enumeration, a dtype. What it does not know is refused, never taken for another.
//   - A shape mistake is a bug of ours and panics, naming op and shapes. Trouble
//     of the device stays in the Device and is returned by Sync.
package device
