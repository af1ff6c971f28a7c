//go:build reworded

package exitcode

import (
	"math/rand/v2"
	"strings"
)

// worded scrambles every message: a program built so behaves as any other, unless some
// of its code reads what is meant for people.
func worded(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == ' ' {
			return r
		}
		return 'a' + rand.Int32N(26)
	}, text)
}
