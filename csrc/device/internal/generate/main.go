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
