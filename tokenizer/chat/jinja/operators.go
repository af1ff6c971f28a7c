package jinja

import (
	"math"
	"math/big"
	"strings"
)

type operation func(r *run, x, y Value) Value

// operators are Python's, by Jinja's names.
var operators map[string]operation

func init() {
	operators = map[string]operation{"add": add, "sub": sub, "mul": mul, "div": div, "floordiv": floorDiv, "mod": mod, "pow": pow}
}

// unsupportedOperands ends an operation that has no meaning for its operands.
func unsupportedOperands(op string, x, y Value) Value {
	for _, v := range []Value{x, y} {
		if u, is := v.(*Undefined); is {
			u.use()
		}
	}
	typeError("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(x), typeName(y))
	return nil
}

// numeric is an operation on numbers: on ints, else on floats; ok is false for other operands.
func (r *run) numeric(x, y Value, ints func(a, b *big.Int) Value, floats func(a, b float64) Value) (v Value, ok bool) {
	a, isA := bigOf(x)
	b, isB := bigOf(y)
	if isA && isB {
		r.alloc((a.BitLen() + b.BitLen()) / 8)
		return ints(a, b), true
	}
	f, isF := floatOf(x)
	g, isG := floatOf(y)
	if !isF || !isG {
		return nil, false
	}
	return floats(f, g), true
}

func add(r *run, x, y Value) Value {
	// Small integers, unless they overflow; then texts, sequences, other numbers.
	if a, is := x.(int); is {
		if b, is := y.(int); is {
			if c := a + b; (c > a) == (b > 0) {
				return c
			}
		}
	}
	switch a := x.(type) {
	case string:
		switch b := y.(type) {
		case string:
			r.alloc(len(a) + len(b) + 16)
			r.scan(len(a) + len(b))
			return a + b
		case Markup:
			return Markup(r.text(r.escape(a) + string(b)))
		}
	case Markup:
		if b, is := textOf(y); is {
			if _, safe := y.(Markup); !safe {
				b = r.escape(b)
			}
			return Markup(r.text(string(a) + b))
		}
	case *List:
		if b, is := y.(*List); is {
			r.allocTimes(len(a.items)+len(b.items), 16)
			return &List{items: append(append([]Value{}, a.items...), b.items...)}
		}
	case *Tuple:
		if b, is := y.(*Tuple); is {
			r.allocTimes(len(a.items)+len(b.items), 16)
			return &Tuple{items: append(append([]Value{}, a.items...), b.items...)}
		}
	}
	v, good := r.numeric(x, y, func(a, b *big.Int) Value { return normal(new(big.Int).Add(a, b)) }, func(a, b float64) Value { return a + b })
	if !good {
		return unsupportedOperands("+", x, y)
	}
	return v
}

func sub(r *run, x, y Value) Value {
	_, view := x.(*dictView)
	if _, other := y.(*dictView); view && other {
		unsupported("sets, such as the difference of the keys of two dicts")
	}
	v, good := r.numeric(x, y, func(a, b *big.Int) Value { return normal(new(big.Int).Sub(a, b)) }, func(a, b float64) Value { return a - b })
	if !good {
		return unsupportedOperands("-", x, y)
	}
	return v
}

func mul(r *run, x, y Value) Value {
	v, good := r.numeric(x, y, func(a, b *big.Int) Value {
		r.step((a.BitLen() / 64) * (b.BitLen() / 64) / 8)
		return normal(new(big.Int).Mul(a, b))
	}, func(a, b float64) Value { return a * b })
	if good {
		return v
	}
	if isInt(x) {
		x, y = y, x
	}
	if !isInt(y) {
		return unsupportedOperands("*", x, y)
	}
	n := max(0, index(y, "*"))
	switch a := x.(type) {
	case string, Markup:
		s, _ := textOf(a)
		return like(a, r.repeat(s, n))
	case *List:
		return &List{items: r.repeatItems(a.items, n)}
	case *Tuple:
		return &Tuple{items: r.repeatItems(a.items, n)}
	}
	return unsupportedOperands("*", x, y)
}

func (r *run) repeat(s string, n int) string {
	if n <= 0 || s == "" {
		return ""
	}
	r.allocTimes(n, len(s))
	return strings.Repeat(s, n)
}

func (r *run) repeatItems(items []Value, n int) []Value {
	if n == 0 || len(items) == 0 {
		return nil
	}
	r.allocTimes(n, 16*len(items))
	out := make([]Value, 0, n*len(items))
	for range n {
		out = append(out, items...)
	}
	return out
}

func zeroDivision(zero bool) {
	if zero {
		fail("ZeroDivisionError", "division by zero")
	}
}

func div(r *run, x, y Value) Value {
	v, good := r.numeric(x, y, func(a, b *big.Int) Value {
		zeroDivision(b.Sign() == 0)
		r.step((a.BitLen() + b.BitLen()) / 64 * ((a.BitLen() + b.BitLen()) / 64))
		f, _ := new(big.Rat).SetFrac(a, b).Float64()
		if math.IsInf(f, 0) {
			fail("OverflowError", "integer division result too large for a float")
		}
		return f
	}, func(a, b float64) Value {
		zeroDivision(b == 0)
		return a / b
	})
	if !good {
		return unsupportedOperands("/", x, y)
	}
	return v
}

func floorDiv(r *run, x, y Value) Value {
	v, good := r.numeric(x, y, func(a, b *big.Int) Value {
		quotient, _ := r.floorDivMod(a, b)
		return normal(quotient)
	}, func(a, b float64) Value {
		quotient, _ := floatDivMod(a, b)
		return quotient
	})
	if !good {
		return unsupportedOperands("//", x, y)
	}
	return v
}

func mod(r *run, x, y Value) Value {
	if s, is := textOf(x); is {
		if _, safe := x.(Markup); safe {
			return Markup(r.percent(s, y, true))
		}
		return r.percent(s, y, false)
	}
	v, good := r.numeric(x, y, func(a, b *big.Int) Value {
		_, rest := r.floorDivMod(a, b)
		return normal(rest)
	}, func(a, b float64) Value {
		_, rest := floatDivMod(a, b)
		return rest
	})
	if !good {
		return unsupportedOperands("%", x, y)
	}
	return v
}

// floorDivMod has the rest's sign as that of the divisor.
func (r *run) floorDivMod(a, b *big.Int) (quotient, rest *big.Int) {
	zeroDivision(b.Sign() == 0)
	r.step((a.BitLen() / 64) * (b.BitLen() / 64) / 8)
	quotient, rest = new(big.Int).QuoRem(a, b, new(big.Int))
	if rest.Sign() != 0 && (rest.Sign() < 0) != (b.Sign() < 0) {
		quotient.Sub(quotient, big.NewInt(1))
		rest.Add(rest, b)
	}
	return quotient, rest
}

// floatDivMod is CPython's float_divmod.
func floatDivMod(a, b float64) (quotient, rest float64) {
	zeroDivision(b == 0)
	rest = math.Mod(a, b)
	quotient = (a - rest) / b
	if rest != 0 {
		if (b < 0) != (rest < 0) {
			rest += b
			quotient--
		}
	} else {
		rest = math.Copysign(0, b)
	}
	if quotient == 0 {
		return math.Copysign(0, a/b), rest
	}
	floor := math.Floor(quotient)
	if quotient-floor > 0.5 {
		floor++
	}
	return floor, rest
}

func pow(r *run, x, y Value) Value {
	v, good := r.numeric(x, y, r.intPow, floatPow)
	if !good {
		return unsupportedOperands("** or pow()", x, y)
	}
	return v
}

func (r *run) intPow(a, b *big.Int) Value {
	if b.Sign() < 0 {
		if a.Sign() == 0 {
			fail("ZeroDivisionError", "0.0 cannot be raised to a negative power")
		}
		f, _ := floatOf(a)
		g, _ := floatOf(b)
		return floatPow(f, g)
	}
	if a.CmpAbs(big.NewInt(1)) <= 0 {
		odd := b.Bit(0) == 1
		if b.Sign() == 0 || a.Sign() < 0 && !odd {
			return 1
		}
		return normal(a)
	}
	const mostBits = 1 << 20
	if !b.IsInt64() || b.Int64() > mostBits || int64(a.BitLen())*b.Int64() > mostBits {
		fail("Limit", "an int of more than %d bits", mostBits)
	}
	bits := a.BitLen() * int(b.Int64())
	r.alloc(bits / 8)
	r.step(bits / 64 * (bits / 64) / 64)
	return normal(new(big.Int).Exp(a, b, nil))
}

// floatPow knows what can be computed as exactly as C's pow does: integer exponents and roots.
func floatPow(a, b float64) Value {
	// Cases without a computation, and those that C may round otherwise.
	switch {
	case a == 0 && b < 0:
		fail("ZeroDivisionError", "0.0 cannot be raised to a negative power")
	case b == 0 || a == 1:
		return 1.0
	case math.IsNaN(a), math.IsNaN(b), math.IsInf(a, 0), math.IsInf(b, 0):
		unsupported("a power of nan or infinity")
	case a < 0 && b != math.Trunc(b):
		unsupported("a fractional power of a negative number, which is complex")
	case b == 0.5:
		return math.Sqrt(a)
	case a == 0:
		return math.Pow(a, b)
	case b != math.Trunc(b) || math.Abs(b) > 5000:
		unsupported("a float raised to the power %s", floatText(b))
	}
	// Exact products of 2,000 bits, rounded once.
	base := new(big.Float).SetPrec(2000).SetFloat64(math.Abs(a))
	result := new(big.Float).SetPrec(2000).SetInt64(1)
	for n := int(math.Abs(b)); n > 0; n >>= 1 {
		if n&1 == 1 {
			result.Mul(result, base)
		}
		base.Mul(base, base)
	}
	if b < 0 {
		result.Quo(new(big.Float).SetPrec(2000).SetInt64(1), result)
	}
	f, _ := result.Float64()
	if math.IsInf(f, 0) {
		fail("OverflowError", "(34, 'Numerical result out of range')")
	}
	if a < 0 && math.Mod(b, 2) != 0 {
		f = -f
	}
	return f
}

func negative(v Value) Value {
	if b, is := bigOf(v); is {
		return normal(new(big.Int).Neg(b))
	}
	return -unaryFloat("-", v)
}

func positive(v Value) Value {
	if b, is := bigOf(v); is {
		return normal(b)
	}
	return unaryFloat("+", v)
}

func unaryFloat(op string, v Value) float64 {
	if u, is := v.(*Undefined); is {
		u.use()
	}
	f, is := v.(float64)
	if !is {
		typeError("bad operand type for unary %s: '%s'", op, typeName(v))
	}
	return f
}
