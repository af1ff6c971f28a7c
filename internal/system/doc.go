// Package system calls the operating system where Unix and Windows differ: memory
// outside Go's heap, free space of disks, limits and accounts of a process, signals.
// What Windows lacks returns an error that wraps errors.ErrUnsupported, or reports
// that nothing is known.
package system
