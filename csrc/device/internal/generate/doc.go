// Command generate writes what follows from the descriptions of the ops (csrc/device/op_*.go) and
// from the table of activations: csrc/device/ops.go and ops.h, for the devices in C. It runs
// in the folder of package device.
//
// Reading order: main.go, read.go (what the descriptions say), golang.go (for Go), c.go
// (for C).
package main
