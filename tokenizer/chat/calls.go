package chat

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// CallFormat is how a template writes the calls of tools in an answer, which is how a model
// trained with it writes them: begin, a call, for each further one again and the call, end. Calls are
// JSON objects with the tool's name and its arguments, a list of such objects, the name followed by
// the arguments as JSON, or the name followed by each argument between tags.
type CallFormat struct {
	Single        bool // the template refuses several calls in an answer
	TextArguments bool // messages give arguments as JSON text, not as an object

	begin, again, end string

	object     *objectKeys // a call is a JSON object; nil: it is not
	list       bool        // calls are one JSON list; begin and end are around it
	open       string      // a call's text before its name
	middle     string      // between the name and the arguments
	close      string      // behind the arguments
	after      string      // behind a call, also behind the last
	parameters *parameterTags
	literals   *literals
}

// literals are the texts of arguments as a list of key and value: {key:value,key:value} or
// (key=value, key=value). quote is around strings.
type literals struct {
	open, assign, quote, close string
	plain                      bool // the template escapes nothing within quotes
}

// objectKeys are the keys of a call's name and arguments.
type objectKeys struct{ name, arguments string }

// parameterTags are the texts around the name and the value of an argument.
type parameterTags struct{ open, middle, close string }

// What the probes that find the format are about. Names are such that no template has them; an id
// has the 9 letters that Mistral's templates require.
const (
	probeName, probeOther     = "probe_function", "other_function"
	probeKey, probeValue      = "first_key", "first value"
	probeKey2, probeValue2    = "second_key", "7"
	probeAnswer               = "An answer of the probe."
	probeArguments            = `{"first_key": "first value", "second_key": 7}`
	probeID                   = "call00001"
	probeSchema               = `{"type": "object", "properties": {"first_key": {"type": "string", "description": "d"}, "second_key": {"type": "integer", "description": "d"}}, "required": ["first_key"]}`
	probeTool                 = `{"type": "function", "function": {"name": %q, "description": "d", "parameters": ` + probeSchema + `}}`
	probeQuestion             = `{"role": "user", "content": "A question of the probe."}`
	unsupportedCalls          = "the chat template writes tool calls in a form that is not supported"
	callsInChannels           = "the chat template writes tool calls in channels, which is not supported"
	templateWithoutTools      = "the chat template does not show tools to the model"
	templateWithoutCalls      = "the chat template does not write tool calls"
	templateWithoutCallsError = templateWithoutCalls + ": %w"
)

// Frame is the text around the calls of an answer, and that between two of them.
func (f *CallFormat) Frame() (begin, again, end string) {
	if f.list {
		return f.begin + "[", ", ", "]" + f.end
	}
	return f.begin, f.after + f.again, f.after + f.end
}

// Around is a call's text around the arguments of the tool. ok: they are JSON.
func (f *CallFormat) Around(tool string) (open, close string, ok bool) {
	return f.open + tool + f.middle, f.close, f.parameters == nil && f.literals == nil && f.middle != ""
}

// ObjectCalls is a format of one call as a JSON object, for templates whose arguments are not JSON.
func ObjectCalls() *CallFormat {
	return &CallFormat{Single: true, object: &objectKeys{"name", "arguments"}, open: `{"name": "`, middle: `", "arguments": `, close: "}"}
}

// Opening is the byte that calls begin with where begin is empty.
func (f *CallFormat) Opening() byte {
	if f.list {
		return '['
	}
	return '{'
}

// CallFormat finds how the template writes calls, by rendering answers with one and two of them. The
// error says why tools cannot be used with it.
func (t *Template) CallFormat() (*CallFormat, error) {
	tools := json.RawMessage("[" + fmt.Sprintf(probeTool, probeName) + "," + fmt.Sprintf(probeTool, probeOther) + "]")
	if _, text := t.chosen(tools); strings.Contains(text, "<|channel|>") {
		return nil, errors.New(callsInChannels)
	}
	question := json.RawMessage(probeQuestion)
	with, err := t.Render([]json.RawMessage{question}, Options{Tools: tools, AddGenerationPrompt: true})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", templateWithoutTools, err)
	}
	if !strings.Contains(with, probeName) {
		return nil, errors.New(templateWithoutTools)
	}
	plain, err := t.Render([]json.RawMessage{question, json.RawMessage(`{"role": "assistant", "content": "` + probeAnswer + `"}`)}, Options{Tools: tools})
	if err != nil {
		return nil, fmt.Errorf(templateWithoutCallsError, err)
	}
	p := probes{template: t, tools: tools, prompt: with, plain: plain, arguments: probeArguments}
	f, err := p.format(false)
	if err != nil && !p.writesObjects() {
		f, err = p.format(true)
	}
	if err == nil && f.literals != nil {
		f.literals.plain = !p.escapes()
	}
	return f, err
}

// escapes reports whether the template writes a backslash within a text twice, as Python does.
func (p probes) escapes() bool {
	p.arguments = strings.Replace(probeArguments, "first value", `first\\value`, 1)
	one, err := p.answer(false, probeName)
	return err == nil && strings.Contains(one, `first\\value`)
}

// writesObjects reports whether the template writes arguments that are given as an object, and not
// as Python writes them.
func (p *probes) writesObjects() bool {
	one, err := p.answer(false, probeName)
	return err == nil && strings.Contains(one, probeValue) && !strings.Contains(one, "'"+probeKey+"'")
}

// probes renders answers with calls, and compares them with an answer without.
type probes struct {
	template *Template
	tools    json.RawMessage
	prompt   string // the question, with the generation prompt
	plain    string // the question and an answer without calls

	arguments string // of the calls
}

// answer is what the template writes for an answer with calls of these tools: without the head of
// the turn, and without its tail where that is the one of a plain answer.
func (p *probes) answer(text bool, names ...string) (string, error) {
	arguments := p.arguments
	if text {
		quoted, err := json.Marshal(arguments)
		if err != nil {
			return "", err
		}
		arguments = string(quoted)
	}
	// A turn that calls these tools, rendered.
	var calls []string
	for i, name := range names {
		calls = append(calls, fmt.Sprintf(`{"id": "%s%d", "type": "function", "function": {"name": %q, "arguments": %s}}`, probeID[:len(probeID)-1], i+1, name, arguments))
	}
	turn := json.RawMessage(`{"role": "assistant", "content": "", "tool_calls": [` + strings.Join(calls, ", ") + `]}`)
	full, err := p.template.Render([]json.RawMessage{json.RawMessage(probeQuestion), turn}, Options{Tools: p.tools})
	if err != nil {
		return "", err
	}
	// What a plain answer has before and behind its text is not part of the calls.
	head, tail, found := strings.Cut(p.plain, probeAnswer)
	if !found || !strings.HasPrefix(full, head) {
		head = full[:commonPrefix(full, p.prompt)]
	}
	body := full[len(head):]
	if found {
		body = strings.TrimSuffix(body, tail)
	}
	if end := p.template.source.EOS; end != "" {
		body, _, _ = strings.Cut(body, end)
	}
	return body, nil
}

// format finds the format where arguments are given as an object or as text.
func (p *probes) format(text bool) (*CallFormat, error) {
	one, err := p.answer(text, probeName)
	if err != nil {
		return nil, fmt.Errorf(templateWithoutCallsError, err)
	}
	if !strings.Contains(one, probeName) {
		return nil, errors.New(templateWithoutCalls)
	}
	f := &CallFormat{TextArguments: text}
	first, err := f.read(one, probeName)
	if err != nil {
		return nil, err
	}
	f.begin = one[:first.from]
	if f.list {
		f.end = one[first.to:]
		return f, nil
	}
	f.after = one[first.to:]
	two, err := p.answer(text, probeName, probeOther)
	if err != nil {
		f.Single = true // the template says so by raise_exception
		return f, nil
	}
	return f, f.separate(two)
}

// separate finds what stands between two calls: the text after each call, then again.
func (f *CallFormat) separate(two string) error {
	a, err := f.read(two, probeName)
	if err != nil {
		return err
	}
	rest := two[a.to:]
	b, err := f.read(rest, probeOther)
	if err != nil {
		return err
	}
	between, after := rest[:b.from], rest[b.to:]
	same := commonPrefix(between, after)
	f.after, f.again, f.end = between[:same], between[same:], after[same:]
	named := strings.Contains(f.middle+f.close+f.after, probeOther) // the name comes twice in a call
	if named || strings.TrimSpace(f.again) == "" && strings.TrimSpace(f.begin) != "" {
		return errors.New(unsupportedCalls)
	}
	return nil
}

// span is where a call stands in a text: [from, to).
type span struct{ from, to int }

// read finds the call of a tool in what the template wrote, and sets the parts of the format within it.
func (f *CallFormat) read(text, name string) (span, error) {
	at := strings.Index(text, name)
	if at < 0 {
		return span{}, errors.New(unsupportedCalls)
	}
	if s, ok := f.readObject(text, name, at); ok {
		return s, nil
	}
	behind := at + len(name)
	for _, arguments := range []string{probeArguments, compact(probeArguments)} {
		if i := strings.Index(text[behind:], arguments); i >= 0 {
			f.middle = text[behind : behind+i]
			if strings.TrimSpace(f.middle) == "" {
				return span{}, errors.New(unsupportedCalls) // a name's end could not be found
			}
			return span{at, behind + i + len(arguments)}, nil
		}
	}
	if s, ok := f.readLiterals(text, at, behind); ok {
		return s, nil
	}
	return f.readParameters(text, at, behind)
}

// readLiterals reads a call whose arguments are a list of key and value in brackets.
func (f *CallFormat) readLiterals(text string, at, behind int) (span, bool) {
	rest := text[behind:]
	for open, close := range map[string]string{"{": "}", "(": ")"} {
		for _, assign := range []string{":", "="} {
			inner, is := strings.CutPrefix(rest, open+probeKey+assign)
			quote, inner, found := strings.Cut(inner, probeValue)
			if !is || !found || quote == "" || len(quote) > longestQuote {
				continue
			}
			for _, comma := range []string{",", ", "} {
				if end := quote + comma + probeKey2 + assign + probeValue2 + close; strings.HasPrefix(inner, end) {
					f.literals = &literals{open: open, assign: assign, quote: quote, close: close}
					return span{at, len(text) - len(inner) + len(end)}, true
				}
			}
		}
	}
	return span{}, false
}

// longestQuote bounds what is around a string.
const longestQuote = 16

// readObject reads a call that is a JSON object with the name and the arguments, maybe in a list.
func (f *CallFormat) readObject(text, name string, at int) (span, bool) {
	for from := strings.LastIndexByte(text[:at], '{'); from >= 0; from = strings.LastIndexByte(text[:from], '{') {
		raw, keys, ok := callObject(text[from:], name)
		if !ok {
			continue
		}
		to := from + len(raw)
		f.object = keys
		at := strings.Index(raw, name)
		f.open, f.middle = raw[:at], ""
		for _, arguments := range []string{probeArguments, compact(probeArguments)} {
			if i := strings.Index(raw, arguments); i > at {
				f.middle, f.close = raw[at+len(name):i], raw[i+len(arguments):]
			}
		}
		before, behind := strings.TrimRight(text[:from], " \n"), strings.TrimLeft(text[to:], " \n")
		if strings.HasSuffix(before, "[") && strings.HasPrefix(behind, "]") {
			f.list = true
			from, to = len(before)-1, len(text)-len(behind)+1
		}
		return span{from, to}, true
	}
	return span{}, false
}

// callObject decodes the JSON object at the beginning of a text. ok: it has the name, and the probe's
// arguments, under these keys.
func callObject(text, name string) (raw string, keys *objectKeys, ok bool) {
	d := json.NewDecoder(strings.NewReader(text))
	var members map[string]json.RawMessage
	if d.Decode(&members) != nil {
		return "", nil, false
	}
	keys = &objectKeys{}
	for key, value := range members {
		var s string
		var arguments map[string]any
		switch {
		case json.Unmarshal(value, &s) == nil && s == name:
			keys.name = key
		case json.Unmarshal(value, &arguments) == nil && arguments[probeKey] == probeValue:
			keys.arguments = key
		}
	}
	return text[:d.InputOffset()], keys, keys.name != "" && keys.arguments != ""
}

// readParameters reads a call whose arguments stand between tags, each with its name: the texts
// between name, key, value, key, value and what follows say which tags these are.
func (f *CallFormat) readParameters(text string, at, behind int) (span, error) {
	var between []string
	to := behind
	for _, part := range []string{probeKey, probeValue, probeKey2, probeValue2} {
		i := strings.Index(text[to:], part)
		if i < 0 {
			return span{}, errors.New(unsupportedCalls)
		}
		between = append(between, text[to:to+i])
		to += i + len(part)
	}
	open := between[2][len(between[2])-commonSuffix(between[0], between[2]):]
	p := &parameterTags{open: open, middle: between[1], close: strings.TrimSuffix(between[2], open)}
	switch {
	case between[3] != p.middle, strings.TrimSpace(p.close) == "", strings.TrimSpace(p.open) == "", !strings.HasPrefix(text[to:], p.close):
		return span{}, errors.New(unsupportedCalls)
	}
	f.middle, f.parameters = strings.TrimSuffix(between[0], open), p
	return span{at, to + len(p.close)}, nil
}

func compact(text string) string { return strings.NewReplacer(`": `, `":`, `, "`, `,"`).Replace(text) }

// commonPrefix is how many bytes two texts begin with alike, no part of a character.
func commonPrefix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	for n > 0 && n < len(a) && a[n]&0xc0 == 0x80 {
		n--
	}
	return n
}

func commonSuffix(a, b string) int {
	n := 0
	for n < len(a) && n < len(b) && a[len(a)-1-n] == b[len(b)-1-n] {
		n++
	}
	return n
}
