package jinja

import (
	"math"
	"strconv"
	"strings"
)

// floatDigits is a float without its sign, as C's conversions e, f and g write it.
func (r *run) floatDigits(f float64, kind byte, precision int, alternate bool) (negative bool, digits string) {
	if precision > 1<<20 {
		valueError("precision too big")
	}
	// Digits cost memory and time before they are made.
	r.alloc(precision + 400)
	r.step(precision)
	negative = math.Signbit(f)
	f = math.Abs(f)
	low := kind | 0x20
	switch {
	case math.IsNaN(f):
		negative, digits = false, "nan"
	case math.IsInf(f, 0):
		digits = "inf"
	case low == 'f':
		digits = strconv.FormatFloat(f, 'f', precision, 64)
		if alternate && precision == 0 {
			digits += "."
		}
	case low == 'e':
		digits = strconv.FormatFloat(f, 'e', precision, 64)
		if alternate && precision == 0 {
			digits = strings.Replace(digits, "e", ".e", 1)
		}
	default:
		digits = general(f, max(1, precision), alternate)
	}
	if kind != low {
		digits = strings.ToUpper(digits)
	}
	return negative, digits
}

// general is C's %g.
func general(f float64, precision int, alternate bool) string {
	scientific := strconv.FormatFloat(f, 'e', precision-1, 64)
	mantissa, exponent, _ := strings.Cut(scientific, "e")
	n, _ := strconv.Atoi(exponent)
	trim := func(s string) string {
		if alternate {
			if !strings.Contains(s, ".") {
				s += "."
			}
			return s
		}
		if strings.Contains(s, ".") {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		return s
	}
	if n < -4 || n >= precision {
		return trim(mantissa) + "e" + exponent
	}
	return trim(strconv.FormatFloat(f, 'f', precision-1-n, 64))
}

// grouped puts a separator between every size digits of the integer part.
func grouped(digits string, separator string, size int) string {
	end := len(digits)
	for i := 0; i < len(digits); i++ {
		if !isHex(digits[i]) || size == 3 && (digits[i] == 'e' || digits[i] == 'E') {
			end = i
			break
		}
	}
	integer, rest := digits[:end], digits[end:]
	if separator == "" || integer == "" {
		return digits
	}
	var parts []string
	for len(integer) > size {
		parts = append([]string{integer[len(integer)-size:]}, parts...)
		integer = integer[:len(integer)-size]
	}
	return strings.Join(append([]string{integer}, parts...), separator) + rest
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}
