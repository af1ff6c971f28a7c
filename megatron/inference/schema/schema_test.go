package schema

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"monotron/internal/exitcode"
	"monotron/tokenizer"
)

// tokens is a vocabulary of all bytes, some pieces of JSON, and an end.
type tokens struct {
	tokenizer.Tokenizer
	list []string
}

const end = 0

func newTokens() *tokens {
	t := &tokens{list: []string{"<end>"}}
	for b := range 256 {
		t.list = append(t.list, string([]byte{byte(b)}))
	}
	t.list = append(t.list, `{"`, `":`, `": `, `",`, `", "`, `"}`, `[[`, `]}`, "true", "false", "null", " 12", "0.5", "hello", "é", "\xf0\x9f\x98", `\"`, "e-1", `a":1`)
	return t
}

func (t *tokens) VocabSize() int                          { return len(t.list) }
func (t *tokens) AppendBytes(dst []byte, id int32) []byte { return append(dst, t.list[id]...) }

// write is a random text within a grammar: of the tokens that are not banned one by chance, with a
// liking for those that end something.
func write(t *testing.T, g *Grammar, tok *tokens, v *Vocabulary, random *rand.Rand) string {
	t.Helper()
	return writeFrom(t, g, tok, v, random, "")
}

// writeFrom is write for a text with a given beginning.
func writeFrom(t *testing.T, g *Grammar, tok *tokens, v *Vocabulary, random *rand.Rand, text string) string {
	t.Helper()
	guide := g.NewGuide(v, tok, []int32{end})
	for i := range len(text) {
		if _, err := guide.Take(int32(text[i]) + 1); err != nil { // a byte's token
			t.Fatalf("%q: %v", text[:i+1], err)
		}
	}
	for n := range 4000 {
		banned := guide.Banned()
		if !slices.IsSorted(banned) {
			t.Fatal("the list is not ascending")
		}
		var open, ending []int32
		for id := range int32(len(tok.list)) {
			if _, is := slices.BinarySearch(banned, id); is {
				continue
			}
			open = append(open, id)
			if id == end || !strings.ContainsAny(tok.list[id], "{[") && strings.ContainsAny(tok.list[id], `"}]n`) {
				ending = append(ending, id)
			}
		}
		if len(open) == 0 {
			t.Fatalf("nothing may follow %q", text)
		}
		if len(ending) > 0 && (n > 200 || random.IntN(3) == 0) {
			open = ending
		}
		id := open[random.IntN(len(open))]
		if id == end {
			return text
		}
		complete, err := guide.Take(id)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if text += tok.list[id]; complete {
			return text
		}
	}
	t.Fatalf("no end: %.200q", text)
	return ""
}

// Claim (docs/serve.md): every text under a schema is valid JSON of that schema, and of a JSON
// object without one: 300 random schemas, 4 texts each.
func TestTextsAreValid(t *testing.T) {
	tok := newTokens()
	v := NewVocabulary(tok, len(tok.list), []int32{end})
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 5))
		s := drawn(random, 0)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		g, err := Compile(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for range 4 {
			answer := write(t, g, tok, v, random)
			var value any
			if err := json.Unmarshal([]byte(answer), &value); err != nil || !utf8.ValidString(answer) {
				t.Fatalf("%s\ngives %q: %v", text, answer, err)
			}
			if why := violates(value, s, s); why != "" {
				t.Fatalf("%s\ngives %q: %s", text, answer, why)
			}
		}
	}
	for seed := range uint64(50) {
		answer := write(t, Any(), tok, v, rand.New(rand.NewPCG(seed, 6)))
		var object map[string]any
		if err := json.Unmarshal([]byte(answer), &object); err != nil {
			t.Fatalf("%q: %v", answer, err)
		}
	}
}

// drawn is a random schema.
func drawn(r *rand.Rand, depth int) map[string]any {
	kinds := []string{"string", "integer", "number", "boolean", "null", "enum", "const", "any", "positive"}
	if depth < 3 {
		kinds = append(kinds, "object", "object", "array", "array", "anyOf", "types", "map", "tuple", "nullable")
	}
	switch kind := kinds[r.IntN(len(kinds))]; kind {
	case "string":
		low := r.IntN(3)
		return map[string]any{"type": "string", "minLength": low, "maxLength": low + r.IntN(6)}
	case "positive":
		return map[string]any{"type": "integer", "minimum": r.IntN(2)}
	case "enum":
		return map[string]any{"enum": []any{"a\"b", 1.5, nil, true, map[string]any{"k": []any{}}}[:1+r.IntN(5)]}
	case "const":
		return map[string]any{"const": "<é>"}
	case "any":
		return map[string]any{}
	case "object":
		properties, required := map[string]any{}, []any{}
		for i := range r.IntN(4) {
			name := fmt.Sprintf("p%d", i)
			if properties[name] = drawn(r, depth+1); r.IntN(2) == 0 {
				required = append(required, name)
			}
		}
		return map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}
	case "map":
		return map[string]any{"type": "object", "additionalProperties": drawn(r, depth+1)}
	case "array":
		low := r.IntN(3)
		return map[string]any{"type": "array", "items": drawn(r, depth+1), "minItems": low, "maxItems": low + r.IntN(3)}
	case "tuple":
		return map[string]any{"type": "array", "prefixItems": []any{drawn(r, depth+1), drawn(r, depth+1)}, "items": false}
	case "anyOf":
		return map[string]any{"anyOf": []any{drawn(r, depth+1), drawn(r, depth+1)}}
	case "types":
		return map[string]any{"type": []any{"string", "null", "integer"}}
	case "nullable":
		return map[string]any{"type": "boolean", "nullable": true}
	default:
		return map[string]any{"type": kind}
	}
}

// violates says why a value is not of a schema of drawn; "": it is.
func violates(v any, s, root map[string]any) string {
	number := func(word string, otherwise int) int {
		if n, is := s[word].(int); is {
			return n
		}
		return otherwise
	}
	if list, is := s["anyOf"].([]any); is {
		for _, one := range list {
			if violates(v, one.(map[string]any), root) == "" {
				return ""
			}
		}
		return fmt.Sprintf("%v is none of %v", v, list)
	}
	if list, is := s["enum"].([]any); is {
		if !slices.ContainsFunc(list, func(one any) bool { return fmt.Sprint(one) == fmt.Sprint(v) }) {
			return fmt.Sprintf("%v is none of %v", v, list)
		}
		return ""
	}
	if c, is := s["const"]; is {
		if c != v {
			return fmt.Sprintf("%v is not %v", v, c)
		}
		return ""
	}
	if s["nullable"] == true && v == nil {
		return ""
	}
	name := "null"
	switch x := v.(type) {
	case string:
		if name = "string"; len([]rune(x)) < number("minLength", 0) || len([]rune(x)) > number("maxLength", 1<<30) {
			return fmt.Sprintf("%q has the wrong length", x)
		}
	case bool:
		name = "boolean"
	case float64:
		if name = "number"; x == float64(int64(x)) && s["type"] != "number" {
			name = "integer"
		}
		if least, is := s["minimum"].(int); is && x < float64(least) {
			return fmt.Sprintf("%v is too small", x)
		}
	case []any:
		name = "array"
		if len(x) < number("minItems", 0) || len(x) > number("maxItems", 1<<30) {
			return fmt.Sprintf("%d items", len(x))
		}
		prefix, _ := s["prefixItems"].([]any)
		if len(prefix) > 0 && len(x) != len(prefix) {
			return fmt.Sprintf("%d items of %d", len(x), len(prefix))
		}
		for i, one := range x {
			of, _ := s["items"].(map[string]any)
			if len(prefix) > 0 {
				of = prefix[i].(map[string]any)
			}
			if why := violates(one, of, root); why != "" {
				return why
			}
		}
	case map[string]any:
		name = "object"
		properties, _ := s["properties"].(map[string]any)
		for key, one := range x {
			of, is := properties[key].(map[string]any)
			if !is {
				if of, is = s["additionalProperties"].(map[string]any); !is && s["additionalProperties"] == false {
					return "a further property " + key
				}
			}
			if why := violates(one, of, root); why != "" {
				return why
			}
		}
		required, _ := s["required"].([]any)
		for _, key := range required {
			if _, is := x[key.(string)]; !is {
				return fmt.Sprintf("%v is missing", key)
			}
		}
	}
	switch types := s["type"].(type) {
	case string:
		if name != types {
			return fmt.Sprintf("%v is not of type %s", v, types)
		}
	case []any:
		if !slices.Contains(types, any(name)) {
			return fmt.Sprintf("%v is of none of %v", v, types)
		}
	}
	return ""
}

// Claim (docs/serve.md): properties come in the schema's order; a schema may hold itself.
func TestOrderAndRecursion(t *testing.T) {
	tok := newTokens()
	v := NewVocabulary(tok, len(tok.list), []int32{end})
	g, err := Compile([]byte(`{"type":"object","properties":{"zeta":{"const":1},"alpha":{"const":2},"next":{"anyOf":[{"$ref":"#"},{"type":"null"}]}},"required":["zeta","alpha","next"],"additionalProperties":false}`))
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		answer := strings.ReplaceAll(write(t, g, tok, v, rand.New(rand.NewPCG(seed, 7))), " ", "")
		if !strings.HasPrefix(answer, `{"zeta":1,"alpha":2,"next":`) || !strings.HasSuffix(strings.TrimRight(answer, "}"), "null") || !json.Valid([]byte(answer)) {
			t.Errorf("%q", answer)
		}
	}
}

// Claim: where a schema allows no items, the only array is the empty one.
func TestNoItems(t *testing.T) {
	g, err := Compile([]byte(`{"type":"array","items":false}`))
	if err != nil {
		t.Fatal(err)
	}
	tok, random := newTokens(), rand.New(rand.NewPCG(5, 5))
	v := NewVocabulary(tok, len(tok.list), []int32{end})
	for range 20 {
		if text := strings.TrimSpace(write(t, g, tok, v, random)); text != "[]" {
			t.Fatalf("it allows %s", text)
		}
	}
}

// Claim (docs/serve.md): what the grammar cannot hold to is refused by name.
func TestRefusals(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                 "is not JSON",
		`{} {}`:             "more than one value",
		`7`:                 "a schema must be an object",
		`{"type":"text"}`:   `unknown type "text"`,
		`{"pattern":"^a$"}`: "#: pattern is not supported",
		`{"type":"object","properties":{"a":{"type":"string","pattern":"x"}}}`:                "#/properties/a: pattern is not supported",
		`{"type":"object","properties":{"a":{}},"required":["b"]}`:                            `"required" names b`,
		`{"type":"object","properties":{"a":{}},"additionalProperties":true}`:                 "additionalProperties together with properties",
		`{"type":"array","minItems":3,"maxItems":2}`:                                          "minItems 3 is above maxItems 2",
		`{"type":"array","minItems":1e9}`:                                                     "minItems",
		`{"type":"integer","minimum":5}`:                                                      "minimum 5",
		`{"type":"number","maximum":5}`:                                                       "maximum is not supported",
		`{"not":{}}`:                                                                          "not is not supported",
		`{"$ref":"#/$defs/a"}`:                                                                "does not name a part of the schema",
		`{"$ref":"http://x"}`:                                                                 "same schema",
		`{"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/a"}}}`:                             "refers to itself",
		`{"$ref":"#/$defs/a","$defs":{"a":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}]}}}`: "refers to itself",
		`{"type":"string","enum":[1,true]}`:                                                   "none of the listed values has the type string",
		`{"type":"string","anyOf":[{"type":"string"},{"type":"integer"}]}`:                    "#/anyOf/1: type integer must be one of the types",
		`{"type":"string","anyOf":[{"$ref":"#"}]}`:                                            "every alternative needs a type",
		`{"allOf":[{},{}]}`:                                                                   "allOf has 2 schemas; only one is supported",
		strings.Repeat(`{"items":`, 100) + `{}` + strings.Repeat(`}`, 100):                    "schemas are nested more than",
		strings.Repeat(`[`, 5000):                                                             "nested too deeply",
		doubling(30):                                                                          "alternatives; at most 1024",
		`{"enum":[` + strings.Repeat(`1,`, 5000) + `1]}`:                                      "enum has 5001 values",
	} {
		if g, err := Compile([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: %v, %v; want %q", text, g, err, want)
		}
	}
}

// Claim: listed values that are not of the type next to them are left out.
func TestListedValuesHaveTheType(t *testing.T) {
	g, err := Compile([]byte(`{"type":["string","null"],"enum":["a",1,null,[2]]}`))
	if err != nil {
		t.Fatal(err)
	}
	tok, random, seen := newTokens(), rand.New(rand.NewPCG(6, 6)), map[string]bool{}
	v := NewVocabulary(tok, len(tok.list), []int32{end})
	for range 60 {
		seen[strings.TrimSpace(write(t, g, tok, v, random))] = true
	}
	if len(seen) != 2 || !seen[`"a"`] || !seen["null"] {
		t.Errorf("it allows %v", seen)
	}
}

// doubling is a schema of n rules, each of which is one of two others: 2^n ways to begin.
func doubling(n int) string {
	text := `{"$ref":"#/$defs/r0","$defs":{`
	for i := range n {
		text += fmt.Sprintf(`"r%d":{"anyOf":[{"$ref":"#/$defs/r%d"},{"$ref":"#/$defs/r%[2]d"}]},`, i, i+1)
	}
	return text + fmt.Sprintf(`"r%d":{"type":"null"}}}`, n)
}

// FuzzCompile: a schema from outside is an error, or a grammar that can begin.
func FuzzCompile(f *testing.F) {
	f.Add(`{"type":"object","properties":{"a":{"type":"array","items":{"$ref":"#"}}}}`)
	f.Add(`{"anyOf":[{"enum":[1,"x"]},{"type":["string","null"],"maxLength":3}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		if g, err := Compile([]byte(text)); err == nil {
			start(g.root)
		}
	})
}

// BenchmarkBanned is what a token costs that comes to a new state, with GPT-2's 50,257 tokens: at
// the beginning of an object, and inside a text of bounded length.
func BenchmarkBanned(b *testing.B) {
	tok, err := tokenizer.FromConfig(tokenizer.Config{Type: "GPT2BPETokenizer"})
	if err != nil {
		b.Fatal(err)
	}
	v := NewVocabulary(tok, tok.VocabSize(), []int32{int32(tok.EOD())})
	for name, c := range map[string]struct{ schema, text string }{"object": {`{"type":"object"}`, ""}, "text": {`{"type":"string","maxLength":100}`, `"a`}, "any text": {`{"type":"string"}`, `"a`}} {
		g, err := Compile([]byte(c.schema))
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				guide := g.NewGuide(v, tok, []int32{int32(tok.EOD())})
				for i := range len(c.text) {
					guide.state, _ = guide.state.step(c.text[i])
				}
				guide.Banned()
			}
		})
	}
}

// Claim (docs/serve.md): a schema whose texts the vocabulary cannot spell is refused with what is missing; one that
// has another way is not.
func TestSpelled(t *testing.T) {
	without := func(gone string) *Vocabulary {
		tok := &tokens{list: []string{"<end>"}}
		for b := range 256 {
			if !strings.ContainsRune(gone, rune(b)) {
				tok.list = append(tok.list, string([]byte{byte(b)}))
			}
		}
		return NewVocabulary(tok, len(tok.list), []int32{end})
	}
	for _, c := range []struct{ schema, gone, want string }{
		{`{"type":"string"}`, `"`, `'"'`},
		{`{"type":"object","properties":{"ab":{"type":"integer"}},"required":["ab"],"additionalProperties":false}`, "b:", `':', 'b'`},
		{`{"type":"object","properties":{"ab":{"type":"integer"}},"additionalProperties":false}`, "b", ""},
		{`{"enum":["x","y"]}`, "x", ""},
		{`{"enum":["x","yz"]}`, "xyz", `'x'`},
		{`{"enum":["é"]}`, "\u00c3\u00a9", ""}, // it may be escaped
		{`{"type":"array","items":{"type":"string","minLength":1},"minItems":1}`, "[", `'['`},
		{`{"type":"array","items":{"$ref":"#"}}`, "0123456789", ""},
		{`{"type":"number"}`, "0123456789", "no token with"},
		{`{}`, "", ""},
	} {
		g, err := Compile([]byte(c.schema))
		if err != nil {
			t.Fatal(err)
		}
		err = g.Spelled(without(c.gone))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s without %q: %v, want %q", c.schema, c.gone, err, c.want)
		}
	}
	// A byte that only longer tokens have does not begin a text.
	v := NewVocabulary(&tokens{list: []string{"<end>", `a"`, `b`}}, 3, []int32{end})
	g, err := Compile([]byte(`{"type":"string"}`))
	if err == nil {
		err = g.Spelled(v)
	}
	if err == nil || !strings.Contains(err.Error(), "begins with") {
		t.Errorf("%v", err)
	}
}

// Claim (docs/serve.md): a text that cannot continue within its schema is the request's fault, and the error names
// what would have to follow.
func TestTextWithoutContinuation(t *testing.T) {
	tok := &tokens{list: []string{"<end>", `"a`, `b"c`, "b"}}
	g, err := Compile([]byte(`{"type":"string","maxLength":1}`))
	if err != nil {
		t.Fatal(err)
	}
	guide := g.NewGuide(NewVocabulary(tok, 4, []int32{end}), tok, []int32{end})
	if _, err = guide.Take(1); exitcode.CodeOf(err) != exitcode.BadData || !strings.Contains(err.Error(), `the next character must be '"'`) {
		t.Errorf("%v", err)
	}
}
