// Package system calls the operating system where Unix and Windows differ. What
// Windows lacks returns an error that wraps errors.ErrUnsupported, or reports that
// nothing is known.
//
// Read in this order: memory_unix.go (memory outside Go's heap), files_unix.go (free
// space, links), process_unix.go (limits, use, signals, process groups). Each has its
// counterpart with the same functions, as memory_windows.go; threads.go asks Linux what threads wait for.
// shared_linux.go has memory that is handed on from process to process.
package system
