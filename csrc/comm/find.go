package comm

import (
	"os"
	"path/filepath"

	"monotron/internal/exitcode"
)

// Library is the file that holds Gloo.
const Library = "libmt_gloo.so"

// Find is the path of the library: what MONOTRON_GLOO names, else the file next to
// this program. The error says why it is missing and what to do.
func Find() (string, error) {
	switch path := os.Getenv("MONOTRON_GLOO"); path {
	case "off":
		return "", exitcode.Errorf(exitcode.Usage, "Gloo is switched off (MONOTRON_GLOO=off)")
	case "":
	default:
		if _, err := os.Stat(path); err != nil {
			return "", exitcode.Errorf(exitcode.NoInput, "MONOTRON_GLOO: %w", err)
		}
		return path, nil
	}
	self, err := os.Executable()
	if err == nil {
		self, err = filepath.EvalSymlinks(self)
	}
	if err != nil {
		return "", exitcode.With(exitcode.IO, err)
	}
	path := filepath.Join(filepath.Dir(self), Library)
	if _, err := os.Stat(path); err != nil {
		return "", exitcode.Errorf(exitcode.NoInput, "%s is not in the program's folder; run make gloo (needs libgloo-dev and g++), or set MONOTRON_GLOO to its path", Library)
	}
	return path, nil
}

// Kinds of numbers and sums that Mesh.AllReduce takes.
const (
	F32 = iota
	F64
	F16
	I32
	I64
)

const (
	Sum = iota
	Max
)
