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
		err = connect()
	}
	if err == nil {
		var b device.Backend
		if b, err = device.OpenLibrary(path, ordinal); err == nil {
			return device.New("cuda", b), nil
		}
	}
	return nil, fmt.Errorf("no CUDA here: %w; --device cpu works", err)
}

// connections is CUDA's variable of how many streams have a queue of their own to the GPU.
const connections = "CUDA_DEVICE_MAX_CONNECTIONS"

// connect asks for as many as there can be, unless somebody has chosen: communication and
// ops that share one of CUDA's usual eight wait for each other. CUDA reads it as it starts.
func connect() error {
	if os.Getenv(connections) != "" {
		return nil
	}
	return os.Setenv(connections, "32")
}

// Wanted tells whether a library is here or was named: a machine that is meant to have a GPU.
func Wanted() bool {
	_, err := library()
	return err == nil || os.Getenv(LibraryVariable) != ""
}

// library is the file to load: the named one, or beside this program.
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
		return "", fmt.Errorf("%s is not beside the program; make cuda builds it, or %s names it", path, LibraryVariable)
	}
	return path, nil
}
