// Command generate writes what follows from the descriptions of the ops (op_*.go) and
// from the table of activations: ops.go, for Go, and ops.h, for the devices in C. It runs
// in the folder of package device.
package main

import (
	"fmt"
	"os"
)

func main() {
	s, err := read(".")
	if err == nil {
		err = s.write()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(70)
	}
}

func (s *source) write() error {
	text, err := s.goFile()
	if err != nil {
		return err
	}
	if err := os.WriteFile("ops.go", text, 0o666); err != nil {
		return err
	}
	return os.WriteFile("ops.h", s.header(), 0o666)
}
