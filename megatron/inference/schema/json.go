package schema

// The parts of JSON. One blank may follow a colon and a comma, as models write it; more would let
// a text continue for ever without saying anything.
var (
	blank     = many{literal(" "), 0, 1}
	comma     = sequence{literal(","), blank}
	digit     = span('0', '9')
	hex       = new(set).add('0', '9').add('a', 'f').add('A', 'F')
	follower  = span(0x80, 0xbf) // of a character of several bytes
	character = choice{
		new(set).add(0x20, 0x21).add(0x23, 0x5b).add(0x5d, 0x7e),
		sequence{span(0xc2, 0xdf), follower},
		sequence{literal("\xe0"), span(0xa0, 0xbf), follower},
		sequence{new(set).add(0xe1, 0xec).add(0xee, 0xef), follower, follower},
		sequence{literal("\xed"), span(0x80, 0x9f), follower},
		sequence{literal("\xf0"), span(0x90, 0xbf), follower, follower},
		sequence{span(0xf1, 0xf3), follower, follower, follower},
		sequence{literal("\xf4"), span(0x80, 0x8f), follower, follower},
		sequence{literal(`\`), choice{escape, sequence{literal("u"), unicode}}},
	}
	escape = new(set).add('"', '"').add('\\', '\\').add('/', '/').add('b', 'b').add('f', 'f').add('n', 'n').add('r', 'r').add('t', 't')
	// unicode is four digits, but half of a surrogate pair.
	unicode = choice{
		sequence{new(set).add('0', '9').add('a', 'c').add('A', 'C').add('e', 'f').add('E', 'F'), hex, hex, hex},
		sequence{new(set).add('d', 'd').add('D', 'D'), span('0', '7'), hex, hex},
	}
	stringNode = sequence{literal(`"`), many{character, 0, -1}, literal(`"`)}

	sign    = many{literal("-"), 0, 1}
	natural = choice{literal("0"), sequence{span('1', '9'), many{digit, 0, mostDigits - 1}}}
	integer = sequence{sign, natural}
	number  = sequence{sign, natural, many{sequence{literal("."), many{digit, 1, mostDigits}}, 0, 1},
		many{sequence{new(set).add('e', 'e').add('E', 'E'), many{new(set).add('+', '+').add('-', '-'), 0, 1}, many{digit, 1, 2}}, 0, 1}}
)

// mostDigits keeps numbers within what a float64 and an int64 hold.
const mostDigits = 15

// anyValue is any JSON value.
var anyValue = &rule{}

// anyObject is any object.
var anyObject = sequence{literal("{"), members{&object{more: pair(stringNode, anyValue)}, 0, false}, literal("}")}

func init() {
	list := choice{literal("[]"), sequence{literal("["), anyValue, many{sequence{comma, anyValue}, 0, -1}, literal("]")}}
	anyValue.node = choice{anyObject, list, stringNode, number, literal("true"), literal("false"), literal("null")}
}

// pair is a member of an object.
func pair(name, value node) node { return sequence{name, literal(":"), blank, value} }

// object is the members that an object may have.
type object struct {
	members []member
	more    node // further ones; nil: none
}

type member struct {
	pair     node
	required bool
}

// members is what may come of an object from member `from` on; after: there is one before.
type members struct {
	of    *object
	from  int
	after bool
}

func (m members) expand(here, next *stack) (all []*stack) {
	separated := func(pair node, rest *stack) {
		if m.after {
			all = append(all, reach(push(comma, push(pair, rest)))...)
		} else {
			all = append(all, reach(push(pair, rest))...)
		}
	}
	for i := m.from; i < len(m.of.members); i++ {
		separated(m.of.members[i].pair, push(members{m.of, i + 1, true}, next))
		if m.of.members[i].required {
			return all
		}
	}
	if m.of.more != nil {
		rest := here
		if !m.after || m.from < len(m.of.members) {
			rest = push(members{m.of, len(m.of.members), true}, next)
		}
		separated(m.of.more, rest)
	}
	return append(all, reach(next)...)
}
