package jinja

import (
	"math"
	"math/big"
	"strconv"
)

func init() {
	if filters == nil {
		filters = map[string]filter{}
	}
	add := func(name, params string, do func(r *run, v Value, args []Value) Value) {
		filters[name] = filter{params: newSignature(params), do: do}
	}
	add("abs", "/", absFilter)
	add("int", "default? base?", intFilter)
	add("float", "default?", floatFilter)
	add("round", "precision? method?", roundFilter)
}

func absFilter(_ *run, v Value, _ []Value) Value {
	if b, is := bigOf(v); is {
		return normal(new(big.Int).Abs(b))
	}
	f, is := v.(float64)
	if !is {
		typeError("bad operand type for abs(): '%s'", typeName(v))
	}
	return math.Abs(f)
}

func intFilter(r *run, v Value, args []Value) Value {
	var absent Value = 0
	if args[0] != nil {
		absent = args[0]
	}
	base := indexOr(args[1], "base", 10)
	s, text := textOf(v)
	// A text: an integer in the base, else a float that is cut.
	if text {
		r.scan(len(s))
		var n Value
		good := false
		if catch(func() { n, good = parseInt(s, base) }, "ValueError") == nil && good {
			return n
		}
		f, good := parseFloat(s)
		if !good || math.IsNaN(f) || math.IsInf(f, 0) {
			return absent
		}
		return truncated(f)
	}
	// A number is cut, anything else is the default.
	if b, is := bigOf(v); is {
		return normal(b)
	}
	if f, is := v.(float64); is {
		if math.IsInf(f, 0) {
			fail("OverflowError", "cannot convert float infinity to integer")
		}
		if math.IsNaN(f) {
			return absent
		}
		return truncated(f)
	}
	if u, is := v.(*Undefined); is {
		u.use()
	}
	return absent
}

func floatFilter(r *run, v Value, args []Value) Value {
	var f float64
	if catch(func() { f = r.toFloat(v) }, "TypeError", "ValueError") != nil {
		if args[0] == nil {
			return 0.0
		}
		return args[0]
	}
	return f
}

func roundFilter(r *run, v Value, args []Value) Value {
	// Jinja's do_round: common is Python's round; ceil and floor scale by 10^precision.
	method := "common"
	if args[1] != nil {
		method, _ = textOf(args[1])
	}
	var precision Value = 0
	if args[0] != nil {
		precision = args[0]
	}
	switch method {
	case "common":
		return r.round(v, precision)
	case "ceil", "floor":
		scale := pow(r, 10, precision)
		scaled := mul(r, v, scale)
		if _, text := textOf(scaled); text || !isNumber(scaled) {
			typeError("must be real number, not %s", typeName(scaled))
		}
		// math.ceil of an int is the int; of a float it is an int too, but the division makes a float again.
		if f, is := scaled.(float64); is {
			if method == "ceil" {
				scaled = truncated(math.Ceil(f))
			} else {
				scaled = truncated(math.Floor(f))
			}
		}
		return div(r, scaled, scale)
	}
	fail("FilterArgumentError", "method must be common, ceil or floor")
	return nil
}

// round is Python's round(v, precision).
func (r *run) round(v, precision Value) Value {
	_, none := precision.(None)
	if !none && !isInt(precision) && isNumber(v) {
		typeError("'%s' object cannot be interpreted as an integer", typeName(precision))
	}
	digits := 0
	if !none && isNumber(v) {
		digits = index(precision, "round()")
	}
	// An int stays an int; a float without digits becomes one.
	if b, is := bigOf(v); is {
		return roundInt(r, b, digits)
	}
	f, is := v.(float64)
	if !is {
		typeError("type %s doesn't define __round__ method", typeName(v))
	}
	switch {
	case none:
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return truncated(f)
		}
		return truncated(math.RoundToEven(f))
	// So many digits change nothing, or leave 0.
	case math.IsNaN(f) || math.IsInf(f, 0) || digits > 330:
		return f
	case digits < -310:
		return math.Copysign(0, f)
	// Python rounds the decimal text, correctly rounded from the exact value.
	case digits >= 0:
		rounded, _ := strconv.ParseFloat(strconv.FormatFloat(f, 'f', digits, 64), 64)
		return rounded
	}
	// Rounded before the point: exactly, halves to even.
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-digits)), nil)
	quotient := new(big.Rat).Quo(new(big.Rat).SetFloat64(f), new(big.Rat).SetInt(unit))
	integer := roundHalfEven(quotient)
	result, _ := new(big.Float).SetInt(integer.Mul(integer, unit)).Float64()
	if math.IsInf(result, 0) {
		fail("OverflowError", "rounded value too large to represent")
	}
	return math.Copysign(result, f)
}

func roundInt(r *run, b *big.Int, digits int) Value {
	if digits >= 0 {
		return normal(b)
	}
	if -digits > b.BitLen() {
		return 0
	}
	unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-digits)), nil)
	integer := roundHalfEven(new(big.Rat).SetFrac(b, unit))
	return normal(integer.Mul(integer, unit))
}

func roundHalfEven(q *big.Rat) *big.Int {
	quotient, rest := new(big.Int).DivMod(q.Num(), q.Denom(), new(big.Int))
	switch doubled := new(big.Int).Mul(rest, big.NewInt(2)); doubled.Cmp(q.Denom()) {
	case 1:
		quotient.Add(quotient, big.NewInt(1))
	case 0:
		if quotient.Bit(0) == 1 {
			quotient.Add(quotient, big.NewInt(1))
		}
	}
	return quotient
}
