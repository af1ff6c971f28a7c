// Package spin is how a loop waits for what comes soon. A package of its own, because Go's
// assembler and cgo cannot be combined.
//
// Reading order: spin.go, what a loop calls; pause_asm.go and pause_amd64.s, pause_arm64.s,
// the processor's hint (pause_other.go for other processors); yield_linux.go, yield_other.go.
package spin
