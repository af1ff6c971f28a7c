package jinja

import (
	"math"
	"math/big"
	"strconv"
	"strings"
)

func intOf(b bool) int {
	if b {
		return 1
	}
	return 0
}

// normal is an int as values hold it: small ones as int.
func normal(b *big.Int) Value {
	if b.IsInt64() {
		return int(b.Int64())
	}
	return b
}

// smallOf is an int or bool that fits int.
func smallOf(v Value) (int, bool) {
	switch v := v.(type) {
	case int:
		return v, true
	case bool:
		return intOf(v), true
	}
	return 0, false
}

// bigOf is any int or bool.
func bigOf(v Value) (*big.Int, bool) {
	if n, is := smallOf(v); is {
		return big.NewInt(int64(n)), true
	}
	b, is := v.(*big.Int)
	return b, is
}

func isInt(v Value) bool {
	_, is := bigOf(v)
	return is
}

// floatOf is a number as a float, as Python converts it.
func floatOf(v Value) (float64, bool) {
	switch v := v.(type) {
	case float64:
		return v, true
	case *big.Int:
		f, _ := new(big.Float).SetInt(v).Float64()
		if math.IsInf(f, 0) {
			fail("OverflowError", "int too large to convert to float")
		}
		return f, true
	}
	n, is := smallOf(v)
	return float64(n), is
}

func isNumber(v Value) bool {
	_, is := v.(float64)
	return is || isInt(v)
}

// index is an int argument, clamped to what Go's ints hold far from overflow.
func index(v Value, what string) int {
	if b, is := v.(*big.Int); is {
		return b.Sign() * (1 << 40)
	}
	n, is := smallOf(v)
	if !is {
		typeError("%s: '%s' object cannot be interpreted as an integer", what, typeName(v))
	}
	return max(-1<<40, min(n, 1<<40))
}

// indexOr is index of an argument that may be missing.
func indexOr(v Value, what string, absent int) int {
	if v == nil {
		return absent
	}
	return index(v, what)
}

func literalInt(form string) Value {
	form = strings.ReplaceAll(form, "_", "")
	if strings.Trim(form, "0") == "" {
		return 0
	}
	b, good := new(big.Int).SetString(form, 0)
	if !good {
		fail("TemplateSyntaxError", "not a number: %s", form)
	}
	if len(form) > mostDigits {
		valueError("an int of more than %d digits", mostDigits)
	}
	return normal(b)
}

func literalFloat(form string) Value {
	f, _ := strconv.ParseFloat(strings.ReplaceAll(form, "_", ""), 64)
	return f
}

// floatText is repr of a float.
func floatText(x float64) string {
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 1):
		return "inf"
	case math.IsInf(x, -1):
		return "-inf"
	}
	if a := math.Abs(x); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(x, 'e', -1, 64)
	}
	s := strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// intText is str of an int.
func (r *run) intText(b *big.Int) string {
	if b.BitLen() > 15_000 {
		valueError("an int of more than %d digits cannot be written", mostDigits)
	}
	r.step(b.BitLen() / 8)
	s := b.String()
	if len(strings.TrimPrefix(s, "-")) > mostDigits {
		valueError("an int of more than %d digits cannot be written", mostDigits)
	}
	return s
}

// refuseDigits refuses numbers in other digits than ASCII's, which Python reads.
func refuseDigits(text string) {
	for _, c := range text {
		if c > 127 && isDecimal(c) {
			unsupported("a number with digits that are not ASCII")
		}
	}
}

// parseInt is int(text, base); good is false where that is a ValueError.
func parseInt(text string, base int) (v Value, good bool) {
	if base != 0 && (base < 2 || base > 36) {
		valueError("int() base must be >= 2 and <= 36, or 0")
	}
	// Sign and prefix; a prefix may stand where the base is its own, or is 0.
	text = strings.TrimFunc(text, isSpace)
	if !isASCII(text) {
		refuseDigits(text)
		return nil, false
	}
	sign, digits := "", strings.ToLower(text)
	if digits != "" && (digits[0] == '-' || digits[0] == '+') {
		sign, digits = strings.TrimPrefix(digits[:1], "+"), digits[1:]
	}
	for prefix, b := range map[string]int{"0x": 16, "0o": 8, "0b": 2} {
		if strings.HasPrefix(digits, prefix) && (base == 0 || base == b) {
			digits, base = strings.TrimPrefix(digits[2:], "_"), b
			break
		}
	}
	// In base 0 a number other than zero has no leading zeros; single underscores may stand between digits.
	if base == 0 {
		if strings.HasPrefix(digits, "0") && strings.Trim(digits, "0_") != "" {
			return nil, false
		}
		base = 10
	}
	if digits == "" || strings.Contains("_"+digits+"_", "__") {
		return nil, false
	}
	digits = strings.ReplaceAll(digits, "_", "")
	// Python bounds the digits of bases that are not powers of two.
	if len(digits) > mostDigits {
		if base&(base-1) == 0 {
			unsupported("int() of a text of more than %d digits", mostDigits)
		}
		return nil, false
	}
	b, good := new(big.Int).SetString(sign+digits, base)
	if !good || strings.ContainsAny(digits, "+-") {
		return nil, false
	}
	return normal(b), true
}

// parseFloat is float(text); good is false where that is a ValueError.
func parseFloat(text string) (f float64, good bool) {
	text = strings.ToLower(strings.TrimFunc(text, isSpace))
	if !isASCII(text) {
		refuseDigits(text)
		return 0, false
	}
	// One sign, a name or digits with single underscores.
	bare := strings.TrimLeft(text, "+-")
	if len(text)-len(bare) > 1 {
		return 0, false
	}
	switch bare {
	case "inf", "infinity":
		return math.Inf(intOf(text[0] != '-')*2 - 1), true
	case "nan":
		return math.NaN(), true
	}
	for i := 0; i < len(bare); i++ {
		digit := func(j int) bool { return j >= 0 && j < len(bare) && bare[j] >= '0' && bare[j] <= '9' }
		switch c := bare[i]; {
		case c == '_' && digit(i-1) && digit(i+1), digit(i), c == '.', c == 'e', c == '+', c == '-':
		default:
			return 0, false
		}
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// truncated is int(x) of a float.
func truncated(x float64) Value {
	if math.IsNaN(x) {
		valueError("cannot convert float NaN to integer")
	}
	if math.IsInf(x, 0) {
		fail("OverflowError", "cannot convert float infinity to integer")
	}
	b, _ := big.NewFloat(x).Int(nil)
	return normal(b)
}
