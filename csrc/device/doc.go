// Package device is the interface between the trainer and what computes for it: the CPU's
// kernels, CUDA, or the reference in Go.
//
// Reading order: tensor.go (what an op sees), op.go and op_*.go (every op's description: arguments, shapes,
// work), known.go (which values a device supports), device.go (how a call is made), arena.go (memory),
// offloaded.go (tensors in files or in the host's memory), pool.go (the threads of a CPU), graph.go (calls
// that are enqueued together), streams.go, trail.go (how much of the enqueued work a device has done), table.go
// with device.h (the C side), library.go (a device in a shared library: CUDA; librarygraphs.go,
// librarystreams.go). go generate makes ops.go and ops.h from the descriptions. philox.go has the random
// numbers, convert.go conversions between dtypes, peak.go a device's peak rates, instructions.go those of the
// processor's instructions, counting.go a device without memory, on which plans are made, outofmemory.go the
// error when memory is used up, fused.go the choice of a vendor's attention.
//
// Invariants
//   - A call is a complete op. Argument structs have the same layout in Go and in
//     C (ops.h), so nothing is translated on the way.
//   - Ops only enqueue; values reach the host by Read alone, which waits.
//   - What changes from step to step (learning rate, loss scale, clip factor,
//     step number) is read through a Tensor, never passed by value.
//   - A result depends on the inputs and shapes only: work is cut and sums are
//     ordered by shape, whatever the number of threads, ranks or the load.
//   - A device is called only with values of enumerations and dtypes that it lists as
//     supported (known.go). A call with any other value is an error that names it.
//   - A wrong shape is a bug of this program and panics, naming op and shapes. An error
//     of the device is kept in the Device and returned by Sync.
package device
