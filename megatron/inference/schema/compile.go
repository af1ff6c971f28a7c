package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Grammar is a compiled schema.
type Grammar struct{ root node }

// Bounds of a schema from outside.
const (
	longestSchema = 1 << 20
	deepest       = 64 // schemas inside each other
	mostRepeats   = 4096
)

// Any is the grammar of every JSON object.
func Any() *Grammar {
	return &Grammar{anyObject}
}

// Compile reads a JSON schema. Understood are type (also a list), properties, required,
// additionalProperties, items, prefixItems, minItems, maxItems, minLength, maxLength, enum, const,
// anyOf, oneOf (as anyOf), allOf of one, $ref to $defs and definitions, nullable, minimum 0 and
// exclusiveMinimum 0 of integers; annotations are passed over, and anything else is an error that names it.
func Compile(text json.RawMessage) (*Grammar, error) {
	if len(text) > longestSchema {
		return nil, fmt.Errorf("the schema has %d bytes; at most %d are allowed", len(text), longestSchema)
	}
	c := &compiler{rules: map[string]*rule{}, counts: map[*rule]int{}}
	var err error
	if c.root, err = decode(text); err != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", err)
	}
	root, err := c.schema(c.root, "#", 0)
	if err != nil {
		return nil, err
	}
	if err := c.finite(); err != nil {
		return nil, err
	}
	if n, err := c.begins(root); err != nil || n > mostBegins {
		return nil, errors.Join(err, fmt.Errorf("the schema has %d alternatives; at most %d are allowed", n, mostBegins))
	}
	return &Grammar{sequence{blank, root}}, nil
}

type compiler struct {
	root   any
	rules  map[string]*rule // by reference
	counts map[*rule]int    // of begins; 0: it is being counted
}

// annotations do not restrict values.
var annotations = strings.Fields("title description default examples example $schema $id $comment $defs definitions deprecated readOnly writeOnly format strict")

// keywords of a schema by what they belong to.
var keywords = map[string][]string{
	"object":  strings.Fields("properties required additionalProperties"),
	"array":   strings.Fields("items prefixItems minItems maxItems"),
	"string":  strings.Fields("minLength maxLength"),
	"integer": strings.Fields("minimum exclusiveMinimum"),
	"number":  nil, "boolean": nil, "null": nil,
}

// schema compiles one; at names it in errors.
func (c *compiler) schema(value any, at string, depth int) (node, error) {
	if depth > deepest {
		return nil, fmt.Errorf("%s: schemas are nested more than %d levels deep", at, deepest)
	}
	if value == true {
		return anyValue, nil
	}
	s, is := value.(*fields)
	if !is {
		return nil, fmt.Errorf("%s: a schema must be an object or true", at)
	}
	if ref, is := s.at("$ref").(string); is {
		return c.reference(ref, at, depth)
	}
	n, err := c.kind(s, at, depth)
	if err == nil && s.at("nullable") == true {
		n = choice{n, literal("null")}
	}
	return n, err
}

// kind compiles a schema by the keyword that decides what it is.
func (c *compiler) kind(s *fields, at string, depth int) (node, error) {
	known := append(slices.Clone(annotations), "type", "nullable")
	// Alternatives: any of several schemas. oneOf is treated as anyOf; of allOf only a list of one can be
	// compiled.
	for _, word := range []string{"anyOf", "oneOf", "allOf"} {
		list, is := s.at(word).([]any)
		if s.at(word) == nil {
			continue
		}
		if !is || len(list) == 0 {
			return nil, fmt.Errorf("%s: %s must be a list of at least one schema", at, word)
		}
		if word == "allOf" && len(list) > 1 {
			return nil, fmt.Errorf("%s: allOf has %d schemas; only one is supported", at, len(list))
		}
		if err := only(s, at, append(known, word)); err != nil {
			return nil, err
		}
		var all choice
		for i, one := range list {
			if err := sameTypes(s, one, fmt.Sprintf("%s/%s/%d", at, word, i)); err != nil {
				return nil, err
			}
			n, err := c.schema(one, fmt.Sprintf("%s/%s/%d", at, word, i), depth+1)
			if err != nil {
				return nil, err
			}
			all = append(all, n)
		}
		if len(all) > mostBegins {
			return nil, fmt.Errorf("%s: %s has %d schemas; at most %d are allowed", at, word, len(all), mostBegins)
		}
		return all, nil
	}
	// Listed values; of them, those of the type where there is one too.
	if list, is := s.at("enum").([]any); is && len(list) > 0 {
		if len(list) > mostBegins {
			return nil, fmt.Errorf("%s: enum has %d values; at most %d are allowed", at, len(list), mostBegins)
		}
		list, err := ofTypes(s, at, list)
		if err != nil {
			return nil, err
		}
		return values(list), only(s, at, append(known, "enum"))
	}
	if s.has("const") {
		list, err := ofTypes(s, at, []any{s.at("const")})
		if err != nil {
			return nil, err
		}
		return values(list), only(s, at, append(known, "const"))
	}
	// Types, each with the keywords that apply to it. Without a type any value is allowed.
	types, err := typesOf(s, at)
	if err != nil {
		return nil, err
	}
	allowed := known
	for _, t := range types {
		allowed = append(allowed, keywords[t]...)
	}
	if err := only(s, at, allowed); err != nil {
		return nil, err
	}
	if len(types) == 0 {
		return anyValue, nil
	}
	var all choice
	for _, t := range types {
		n, err := c.typed(t, s, at, depth)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// typesOf is the types of a schema: what its keywords belong to where it names none.
func typesOf(s *fields, at string) (types []string, err error) {
	switch t := s.at("type").(type) {
	case nil:
		for _, name := range []string{"object", "array", "string"} {
			if slices.ContainsFunc(keywords[name], func(word string) bool { return s.at(word) != nil }) {
				return []string{name}, nil
			}
		}
		return nil, nil
	case string:
		types = []string{t}
	case []any:
		for _, one := range t {
			name, _ := one.(string)
			types = append(types, name)
		}
	}
	for _, t := range types {
		if _, known := keywords[t]; !known {
			return nil, fmt.Errorf("%s: unknown type %q; choose from object, array, string, integer, number, boolean, null", at, t)
		}
	}
	if len(types) == 0 {
		return nil, fmt.Errorf("%s: type is neither a name nor a list of names", at)
	}
	return types, nil
}

// sameTypes refuses an alternative that may be of other types than s, which lists them next to its alternatives.
func sameTypes(s *fields, alternative any, at string) error {
	if s.at("type") == nil {
		return nil
	}
	types, err := typesOf(s, at)
	if err != nil {
		return err
	}
	own, _ := alternative.(*fields)
	if own.at("type") == nil {
		return fmt.Errorf("%s: every alternative needs a type, because the enclosing schema has one", at)
	}
	others, err := typesOf(own, at)
	if err != nil {
		return err
	}
	for _, t := range others {
		if !slices.Contains(types, t) && (t != "integer" || !slices.Contains(types, "number")) {
			return fmt.Errorf("%s: type %s must be one of the types %v, which the enclosing schema allows", at, t, types)
		}
	}
	return nil
}

// ofTypes is the listed values that have one of the types of s, all of them where it names none.
func ofTypes(s *fields, at string, list []any) (kept []any, err error) {
	if s.at("type") == nil {
		return list, nil
	}
	types, err := typesOf(s, at)
	if err != nil {
		return nil, err
	}
	for _, v := range list {
		if slices.ContainsFunc(types, func(t string) bool { return hasType(v, t) }) {
			kept = append(kept, v)
		}
	}
	if len(kept) == 0 {
		return nil, fmt.Errorf("%s: none of the listed values has the type %s", at, strings.Join(types, " or "))
	}
	return kept, nil
}

// hasType reports whether a decoded value is of a type of JSON schema.
func hasType(v any, t string) bool {
	switch v := v.(type) {
	case nil:
		return t == "null"
	case bool:
		return t == "boolean"
	case string:
		return t == "string"
	case float64:
		return t == "number" || t == "integer" && v == math.Trunc(v)
	case []any:
		return t == "array"
	}
	return t == "object"
}

// only refuses keywords that the grammar does not hold to.
func only(s *fields, at string, known []string) error {
	for _, word := range s.names {
		if !slices.Contains(known, word) {
			return fmt.Errorf("%s: %s is not supported here", at, word)
		}
	}
	return nil
}

func (c *compiler) typed(t string, s *fields, at string, depth int) (node, error) {
	switch t {
	case "object":
		return c.object(s, at, depth)
	case "array":
		return c.array(s, at, depth)
	case "string":
		least, most, err := counts(s, at, "minLength", "maxLength")
		return sequence{literal(`"`), many{character, least, most}, literal(`"`)}, err
	case "integer":
		return integerFrom(s, at)
	case "number":
		return number, nil
	case "boolean":
		return choice{literal("true"), literal("false")}, nil
	}
	return literal("null"), nil
}

// integerFrom is an integer of any sign, or from 0 or 1 on.
func integerFrom(s *fields, at string) (node, error) {
	positive := sequence{span('1', '9'), many{digit, 0, mostDigits - 1}}
	for word, n := range map[string]node{"minimum": choice{literal("0"), positive}, "exclusiveMinimum": positive} {
		switch v := s.at(word); {
		case v == nil:
		case v == 0., word == "minimum" && v == 1.:
			if v == 1. {
				return positive, nil
			}
			return n, nil
		default:
			return nil, fmt.Errorf("%s: %s %v is not supported; it must be 0", at, word, v)
		}
	}
	return integer, nil
}

// object has its properties in the order of the schema, those that are not required left out or
// not, then others where the schema allows them.
func (c *compiler) object(s *fields, at string, depth int) (node, error) {
	properties, _ := s.at("properties").(*fields)
	var names []string
	if properties != nil {
		names = properties.names
	}
	if len(names) > mostBegins {
		return nil, fmt.Errorf("%s: there are %d properties; at most %d are allowed", at, len(names), mostBegins)
	}
	// Properties, in the schema's order.
	required := s.list("required")
	o := &object{}
	for _, name := range names {
		value, err := c.schema(properties.at(name), at+"/properties/"+name, depth+1)
		if err != nil {
			return nil, err
		}
		o.members = append(o.members, member{pair(written(name), value), slices.Contains(required, any(name))})
	}
	for _, name := range required {
		if text, is := name.(string); !is || !properties.has(text) {
			return nil, fmt.Errorf("%s: \"required\" names %v, which is not in \"properties\"", at, name)
		}
	}
	// Other properties: any name, and values of a schema.
	switch more := s.at("additionalProperties").(type) {
	case nil:
		if len(names) == 0 {
			o.more = pair(stringNode, anyValue)
		}
	case bool:
		if more {
			o.more = pair(stringNode, anyValue)
		}
	default:
		value, err := c.schema(more, at+"/additionalProperties", depth+1)
		if err != nil {
			return nil, err
		}
		o.more = pair(stringNode, value)
	}
	if o.more != nil && len(names) > 0 {
		return nil, fmt.Errorf("%s: additionalProperties together with properties is not supported, because a name could occur twice; set additionalProperties to false", at)
	}
	return sequence{literal("{"), members{o, 0, false}, literal("}")}, nil
}

func (c *compiler) array(s *fields, at string, depth int) (node, error) {
	least, most, err := counts(s, at, "minItems", "maxItems")
	if err != nil {
		return nil, err
	}
	// One schema for all items.
	item := node(anyValue)
	if s.at("items") != nil && s.at("items") != false {
		if item, err = c.schema(s.at("items"), at+"/items", depth+1); err != nil {
			return nil, err
		}
	}
	// Or a tuple, of which the length is fixed: a schema for each position.
	prefix, _ := s.at("prefixItems").([]any)
	if len(prefix) > 0 {
		var all sequence
		for i, one := range prefix {
			n, err := c.schema(one, fmt.Sprintf("%s/prefixItems/%d", at, i), depth+1)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				all = append(all, comma)
			}
			all = append(all, n)
		}
		if s.at("items") != false || least > len(prefix) || most >= 0 && most < len(prefix) {
			return nil, fmt.Errorf("%s: prefixItems needs \"items\": false, a minItems (if any) of at most %d, and a maxItems (if any) of at least %[2]d", at, len(prefix))
		}
		return sequence{literal("["), all, literal("]")}, nil
	}
	// The first item, then further ones with commas in front; [] where no item is required, or none is allowed.
	if most == 0 || s.at("items") == false && least == 0 {
		return literal("[]"), nil
	}
	further := many{sequence{comma, item}, max(0, least-1), most}
	if most > 0 {
		further.max--
	}
	full := sequence{literal("["), item, further, literal("]")}
	if least > 0 {
		return full, nil
	}
	return choice{literal("[]"), full}, nil
}

// counts reads two bounds: 0 and −1 where they are not given.
func counts(s *fields, at, low, high string) (least, most int, err error) {
	most = -1
	for word, to := range map[string]*int{low: &least, high: &most} {
		if s.at(word) == nil {
			continue
		}
		v, is := s.at(word).(float64)
		if !is || v != float64(int(v)) || v < 0 || v > mostRepeats {
			return 0, 0, fmt.Errorf("%s: %s %v is not an integer from 0 to %d", at, word, s.at(word), mostRepeats)
		}
		*to = int(v)
	}
	if most >= 0 && least > most {
		return 0, 0, fmt.Errorf("%s: %s %d is above %s %d", at, low, least, high, most)
	}
	return least, most, nil
}

// reference is a rule, compiled once.
func (c *compiler) reference(ref, at string, depth int) (node, error) {
	if r, known := c.rules[ref]; known {
		return r, nil
	}
	path, local := strings.CutPrefix(ref, "#")
	if !local {
		return nil, fmt.Errorf("%s: $ref %q: only references into the same schema are supported", at, ref)
	}
	value := c.root
	for _, name := range strings.Split(strings.TrimPrefix(path, "/"), "/") {
		if name == "" {
			continue
		}
		name = strings.NewReplacer("~1", "/", "~0", "~").Replace(name)
		inside, _ := value.(*fields)
		if value = inside.at(name); value == nil {
			return nil, fmt.Errorf("%s: $ref %q does not name a part of the schema", at, ref)
		}
	}
	r := &rule{}
	c.rules[ref] = r
	var err error
	r.node, err = c.schema(value, ref, depth+1)
	return r, err
}

// finite refuses rules that are themselves before any byte, which no text satisfies, and points where
// so many alternatives begin that following them takes long.
func (c *compiler) finite() error {
	for ref, r := range c.rules {
		if n, err := c.begins(r); err != nil {
			return fmt.Errorf("$ref %q %w", ref, err)
		} else if n > mostBegins {
			return fmt.Errorf("$ref %q has %d alternatives; at most %d are allowed", ref, n, mostBegins)
		}
	}
	return nil
}

// mostBegins bounds the alternatives that begin at one position of a text.
const mostBegins = 1024

// begins counts the ways in which a node may begin. Every value begins with a byte, so that only
// choices, rules and what comes first of a sequence matter.
func (c *compiler) begins(n node) (count int, err error) {
	switch n := n.(type) {
	case *rule:
		count, known := c.counts[n]
		switch {
		case n == anyValue:
			return len(anyValue.node.(choice)), nil
		case known && count == 0: // it is being counted
			return 0, errors.New("refers to itself before any value")
		case known:
			return count, nil
		}
		c.counts[n] = 0
		if count, err = c.begins(n.node); err == nil {
			c.counts[n] = max(1, count)
		}
		return count, err
	case choice:
		for _, one := range n {
			more, err := c.begins(one)
			if err != nil {
				return 0, err
			}
			count = min(count+more, 1<<30)
		}
		return count, nil
	case sequence:
		if len(n) > 0 {
			return c.begins(n[0])
		}
	}
	return 1, nil
}

// values are constants, as JSON writes them without blanks.
func values(list []any) choice {
	var all choice
	for _, v := range list {
		all = append(all, written(v))
	}
	return all
}

// written is a constant; numbers and texts as encoding/json writes them, "<" as it is.
func written(v any) node {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return choice{} // it came from JSON, so that this does not happen
	}
	return plain(strings.TrimSuffix(b.String(), "\n"))
}

// plain is a text of JSON; what is not ASCII may also be escaped, for vocabularies without it.
func plain(text string) node {
	var all sequence
	from := 0
	for i, r := range text {
		if r < 0x80 {
			continue
		}
		escaped := fmt.Sprintf(`\u%04x`, r)
		if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
			escaped = fmt.Sprintf(`\u%04x\u%04x`, high, low)
		}
		end := i + utf8.RuneLen(r)
		all = append(all, literal(text[from:i]), choice{literal(text[i:end]), literal(escaped)})
		from = end
	}
	return append(all, literal(text[from:]))
}
