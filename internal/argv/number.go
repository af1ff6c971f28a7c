package argv

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// Int reads an integer as Python's int() does: white space around it, a sign,
// single underscores between digits, leading zeros, decimal digits of any script.
// A number beyond 64 bits is the nearest that fits.
func Int(text string) (n int64, ok bool) {
	digits, negative := unsigned(strings.TrimSpace(text))
	afterDigit := false
	for _, r := range digits {
		if r == '_' && afterDigit {
			afterDigit = false
			continue
		}
		d, isDigit := digitValue(r)
		if !isDigit {
			return 0, false
		}
		n, afterDigit = append10(n, d), true
	}
	if negative {
		n = -n
	}
	return n, afterDigit
}

// append10 is 10n+d, or the largest number.
func append10(n int64, d int) int64 {
	if n > (math.MaxInt64-9)/10 {
		return math.MaxInt64
	}
	return 10*n + int64(d)
}

var (
	pythonFloat  = regexp.MustCompile(`^(\d+(_\d+)*\.?(\d+(_\d+)*)?|\.\d+(_\d+)*)([eE][+-]?\d+(_\d+)*)?$`)
	pythonUneven = regexp.MustCompile(`^(?i:inf|infinity|nan)$`)
)

// Float reads a number as Python's float() does: as Int, with a point, an
// exponent, inf, infinity and nan in any case. A number beyond the largest is
// infinite.
func Float(text string) (x float64, ok bool) {
	digits, negative := unsigned(strings.Map(asciiDigit, strings.TrimSpace(text)))
	if !pythonFloat.MatchString(digits) && !pythonUneven.MatchString(digits) {
		return 0, false
	}
	x, err := strconv.ParseFloat(strings.ReplaceAll(digits, "_", ""), 64)
	if negative {
		x = -x
	}
	return x, err == nil || errors.Is(err, strconv.ErrRange)
}

func unsigned(text string) (rest string, negative bool) {
	if strings.HasPrefix(text, "-") {
		return text[1:], true
	}
	return strings.TrimPrefix(text, "+"), false
}

// asciiDigit is r, or its twin among 0 to 9 where it is a digit of another script.
func asciiDigit(r rune) rune {
	if d, ok := digitValue(r); ok {
		return rune('0' + d)
	}
	return r
}

// digitValue is the value of a decimal digit of any script: Unicode keeps each
// script's ten digits together, in order.
func digitValue(r rune) (int, bool) {
	if r < 0x80 {
		return int(r - '0'), r >= '0' && r <= '9'
	}
	for _, t := range unicode.Nd.R16 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return int(r-rune(t.Lo)) % 10, true
		}
	}
	for _, t := range unicode.Nd.R32 {
		if rune(t.Lo) <= r && r <= rune(t.Hi) {
			return int(r-rune(t.Lo)) % 10, true
		}
	}
	return 0, false
}
