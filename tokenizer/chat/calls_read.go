package chat

import (
	"encoding/json"
	"slices"
	"strings"
)

// Call is a call of a tool. Arguments is JSON as the model wrote it.
type Call struct{ Name, Arguments string }

// longestName bounds the name of a tool.
const longestName = 128

// Kept is how many bytes at the end of a text that is not complete have to wait: they may be
// the beginning of calls. calls: everything from there on is calls, as far as it is known.
func (f *CallFormat) Kept(text string) (n int, calls bool) {
	begin := strings.TrimSpace(f.begin)
	if begin == "" {
		start := strings.TrimLeft(text, " \t\r\n")
		if start == "" || start[0] == f.Opening() {
			return len(text), start != ""
		}
		return 0, false
	}
	if at := strings.Index(text, begin); at >= 0 {
		return len(text) - len(strings.TrimRight(text[:at], " \t\r\n")), true
	}
	for n = min(len(begin)-1, len(text)); n > 0 && !strings.HasSuffix(text, begin[:n]); n-- {
	}
	spaces := text[:len(text)-n]
	return n + len(spaces) - len(strings.TrimRight(spaces, " \t\r\n")), false
}

// Read takes the calls out of an answer. content is the text before them. An answer whose calls cannot
// be read, as where it was cut off, is all content.
func (f *CallFormat) Read(answer string, tools []Tool) (content string, calls []Call) {
	kept, found := f.Kept(answer)
	if !found {
		return answer, nil
	}
	content = answer[:len(answer)-kept]
	rest := answer[len(content):]
	if begin := strings.TrimSpace(f.begin); begin != "" {
		_, rest, _ = strings.Cut(rest, begin)
	}
	if f.list {
		calls = f.readList(rest)
	} else {
		calls = f.readEach(rest, tools)
	}
	if calls == nil {
		return answer, nil
	}
	return content, calls
}

func (f *CallFormat) readList(text string) (calls []Call) {
	var list []map[string]json.RawMessage
	if json.NewDecoder(strings.NewReader(text)).Decode(&list) != nil {
		return nil
	}
	for _, members := range list {
		c, ok := f.object.call(members)
		if !ok {
			return nil
		}
		calls = append(calls, c)
	}
	return calls
}

// call is a call from the members of an object.
func (k *objectKeys) call(members map[string]json.RawMessage) (c Call, ok bool) {
	if json.Unmarshal(members[k.name], &c.Name) != nil || c.Name == "" || len(c.Name) > longestName {
		return c, false
	}
	c.Arguments = string(members[k.arguments])
	var text string
	switch {
	case len(members[k.arguments]) == 0 || c.Arguments == "null":
		c.Arguments = "{}"
	case json.Unmarshal(members[k.arguments], &text) == nil: // JSON within a string
		c.Arguments = text
	}
	return c, isObject(c.Arguments)
}

func isObject(text string) bool {
	var o map[string]json.RawMessage
	return json.Unmarshal([]byte(text), &o) == nil && o != nil
}

// readEach reads calls one after another, each behind what separates them.
func (f *CallFormat) readEach(text string, tools []Tool) (calls []Call) {
	for {
		c, rest, ok := f.readCall(text, tools)
		if !ok {
			return calls // a call that was cut off behind others is dropped
		}
		calls = append(calls, c)
		rest = skip(rest, f.after)
		again := strings.TrimSpace(f.again)
		rest, found := strings.CutPrefix(strings.TrimLeft(rest, " \t\r\n"), again)
		if !found || rest == "" || again == "" {
			return calls
		}
		text = rest
	}
}

func (f *CallFormat) readCall(text string, tools []Tool) (c Call, rest string, ok bool) {
	// The complete call is one JSON object.
	if f.object != nil {
		d := json.NewDecoder(strings.NewReader(text))
		var members map[string]json.RawMessage
		if d.Decode(&members) != nil {
			return c, "", false
		}
		c, ok = f.object.call(members)
		return c, text[d.InputOffset():], ok
	}
	// A name first,
	text = strings.TrimLeft(text, " \t\r\n")
	end := strings.IndexFunc(text, func(r rune) bool { return !nameRune(r) })
	if end < 0 {
		end = len(text)
	}
	if c.Name = text[:end]; end == 0 || end > longestName {
		return c, "", false
	}
	text = text[end:]
	// then literals, tagged parameters, or an object of JSON.
	if f.literals != nil {
		c.Arguments, rest, ok = f.literals.arguments(text)
		return c, rest, ok
	}
	if f.parameters != nil {
		c.Arguments, rest, ok = f.parameters.read(skip(text, f.middle), toolOf(tools, c.Name))
		return c, rest, ok
	}
	text, ok = strings.CutPrefix(strings.TrimLeft(text, " \t\r\n"), strings.TrimLeft(f.middle, " \t\r\n"))
	if !ok {
		return c, "", false
	}
	d := json.NewDecoder(strings.NewReader(text))
	var raw json.RawMessage
	if d.Decode(&raw) != nil || !isObject(string(raw)) {
		return c, "", false
	}
	c.Arguments = string(raw)
	return c, text[d.InputOffset():], true
}

// nameRune is a character of a tool's name.
func nameRune(r rune) bool {
	return r == '_' || r == '-' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// skip drops a text, without regard to the blanks around it, where it comes next.
func skip(text, next string) string {
	if rest, found := strings.CutPrefix(strings.TrimLeft(text, " \t\r\n"), strings.TrimSpace(next)); found {
		return rest
	}
	return text
}

// read gathers the arguments between their tags.
func (p *parameterTags) read(text string, tool *Tool) (arguments, rest string, ok bool) {
	var members []string
	for {
		name, behind, found := strings.Cut(skip(text, p.open), strings.TrimRight(p.middle, " \t\r\n"))
		if !found || skip(text, p.open) == text || strings.ContainsFunc(name, func(r rune) bool { return !nameRune(r) }) {
			break
		}
		value, behind, found := strings.Cut(behind, strings.TrimSpace(p.close))
		if !found {
			return "", "", false
		}
		if strings.HasSuffix(p.middle, "\n") && strings.HasPrefix(p.close, "\n") { // newlines that the template writes
			value = strings.TrimSuffix(strings.TrimPrefix(value, "\n"), "\n")
		}
		key, err := json.Marshal(name)
		if err != nil {
			return "", "", false
		}
		argument, err := tool.argument(name, value)
		if err != nil {
			return "", "", false
		}
		members, text = append(members, string(key)+": "+argument), behind
	}
	return "{" + strings.Join(members, ", ") + "}", text, true
}

// Tool is a function that a model may call. Parameters is the schema of its arguments, an object; none:
// any object.
type Tool struct {
	Name       string
	Parameters json.RawMessage
}

func toolOf(tools []Tool, name string) *Tool {
	for i := range tools {
		if tools[i].Name == name {
			return &tools[i]
		}
	}
	return nil
}

// pythonWords are names of Python, which templates write for values that they print.
var pythonWords = map[string]string{"True": "true", "False": "false", "None": "null"}

// argument is a value between tags as JSON: text where the tool's schema takes only text, else what JSON or Python
// reads, else text.
func (t *Tool) argument(name, value string) (string, error) {
	word := value
	if other, is := pythonWords[value]; is {
		word = other
	}
	kinds := t.kinds(name)
	text := kinds["string"] && (len(kinds) == 1 || len(kinds) == 2 && kinds["null"])
	if json.Valid([]byte(word)) && (!text || word == "null" && kinds["null"]) {
		return word, nil
	}
	quoted, err := json.Marshal(value)
	return string(quoted), err
}

// kinds are the types that the tool's schema takes for an argument; none: not said.
func (t *Tool) kinds(name string) map[string]bool {
	var schema struct {
		Properties map[string]json.RawMessage `json:"properties"`
	}
	found := map[string]bool{}
	if t != nil && json.Unmarshal(t.Parameters, &schema) == nil {
		addKinds(found, schema.Properties[name])
	}
	return found
}

// addKinds adds the types of a schema: those that it names, of its values, or of its alternatives.
func addKinds(found map[string]bool, raw json.RawMessage) {
	var s struct {
		Type  any
		Enum  []any
		AnyOf []json.RawMessage
		OneOf []json.RawMessage
	}
	if json.Unmarshal(raw, &s) != nil {
		return
	}
	switch names := s.Type.(type) {
	case string:
		found[names] = true
	case []any:
		for _, n := range names {
			if text, is := n.(string); is {
				found[text] = true
			}
		}
	case nil:
		for _, v := range s.Enum {
			switch v.(type) {
			case string:
				found["string"] = true
			case nil:
				found["null"] = true
			default:
				found["another"] = true
			}
		}
	}
	for _, one := range slices.Concat(s.AnyOf, s.OneOf) {
		addKinds(found, one)
	}
}
