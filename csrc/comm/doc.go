// Package comm opens engines that carry bytes between processes: shared
// libraries that export the table of comm.h. There is one, Gloo (gloo/, built by
// `make gloo`). The program is built and started without it.
//
// Reading order: comm.h (the table), find.go (where the library is), engine.go (its calls,
// in Go; nocgo.go without cgo), gloo/ (the library). NCCL is opened in nccl/.
package comm
