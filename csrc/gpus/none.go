//go:build !cgo || !linux

package gpus

import (
	"context"

	"monotron/internal/exitcode"
)

// Read needs C and Linux, where NVIDIA's driver is asked.
func Read() (Survey, error) { return Survey{}, unbuilt() }

// Watch needs C and Linux too.
func Watch(context.Context, func(line string)) error { return unbuilt() }

func unbuilt() error {
	return exitcode.Errorf(exitcode.Usage, "this program was built without cgo and cannot query NVIDIA's driver; build it with a C compiler")
}
