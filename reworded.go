//go:build reworded

package main

import (
	"math/rand/v2"
	"strings"

	"monotron/internal/exitcode"
)

// A program built with the tag reworded scrambles every message: it behaves as any other, unless some
// of its code reads what is meant for people (tests/faults_test.go).
func init() {
	exitcode.Reword = func(text string) string {
		return strings.Map(func(r rune) rune {
			if r == '\n' || r == ' ' {
				return r
			}
			return 'a' + rand.Int32N(26)
		}, text)
	}
}
