// Package spin is the processor's hint for a loop that waits: it leaves the core
// to the other hardware thread for a moment. A package of its own, because Go's
// assembler and cgo exclude each other.
package spin
