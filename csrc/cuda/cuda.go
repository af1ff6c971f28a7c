//go:build cgo

package cuda

import (
	"fmt"
	"os"
	"path/filepath"

	"monotron/csrc/device"
)

// LibraryVariable names the library's file when it lies somewhere else, or is
// the emulated one.
const LibraryVariable = "MONOTRON_CUDA_LIBRARY"

const libraryName = "libmt_cuda.so"

// Open makes a device for one rank on GPU `ordinal`. The error says in one line
// what is missing and what still works.
func Open(ordinal int) (*device.Device, error) {
	path, err := library()
	if err == nil {
		err = wish()
	}
	if err == nil {
		var b device.Backend
		if b, err = device.OpenLibrary(path, ordinal); err == nil {
			return device.New("cuda", b), nil
		}
	}
	return nil, fmt.Errorf("CUDA cannot be used: %w; to compute without a GPU, use --device cpu", err)
}

// wishes are CUDA's variables, which it reads as it starts: as many queues to the GPU as there
// can be, since communication and ops that share one of the usual eight wait for each other;
// and every kernel loaded at once, since a kernel's first launch would otherwise wait for all
// streams, and so for a collective that other ranks enter later.
var wishes = map[string]string{"CUDA_DEVICE_MAX_CONNECTIONS": "32", "CUDA_MODULE_LOADING": "EAGER"}

// wish sets them, unless somebody has chosen.
func wish() error {
	for name, value := range wishes {
		if os.Getenv(name) != "" {
			continue
		}
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// Wanted reports whether a library is here or was named: a machine that is meant to have a GPU.
func Wanted() bool {
	_, err := library()
	return err == nil || os.Getenv(LibraryVariable) != ""
}

// library is the file to load: the named one, or the one next to this program.
func library() (string, error) {
	if path := os.Getenv(LibraryVariable); path != "" {
		if _, err := os.Stat(path); err != nil {
			return "", fmt.Errorf("%s: %w", LibraryVariable, err)
		}
		return filepath.Abs(path)
	}
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(program); err == nil {
		program = real
	}
	path := filepath.Join(filepath.Dir(program), libraryName)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s does not exist; build this library with make cuda, or set %s to its path", path, LibraryVariable)
	}
	return path, nil
}
