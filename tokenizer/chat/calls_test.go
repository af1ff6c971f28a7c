package chat

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"monotron/internal/golden"
)

// Templates in the manner of families whose calls are not JSON objects, with the tools named as they
// show them.
const (
	tagsTemplate = `{% for t in tools %}{{ t.function.name }} {% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls %}{% if m.content or not loop.first %}{{ '\n\n' }}{% endif %}<tool_call>
<function={{ c.function.name }}>
{% for k, v in c.function.arguments.items() %}<parameter={{ k }}>
{{ v if v is string else v | tojson }}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
<think>
{% endif %}`
	keysTemplate = `{% for t in tools %}{{ t.function.name }} {% endfor %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% for c in m.tool_calls %}
<tool_call>{{ c.function.name }}
{% for k, v in c.function.arguments.items() %}<arg_key>{{ k }}</arg_key>
<arg_value>{{ v if v is string else v | tojson }}</arg_value>
{% endfor %}</tool_call>{% endfor %}{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}`
	bareTemplate = `{% for t in tools %}{{ t.function.name }} {% endfor %}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}{% if loop.first %}<calls>{% endif %}<call>function<sep>{{ c.function.name + '\n` + "```" + `json\n' + c.function.arguments + '\n` + "```" + `' }}</call>{% if loop.last %}</calls>{% endif %}{% endfor %}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`
)

// Templates that write arguments as literals: in the manner of LFM2, and of Gemma 4.
const (
	pythonTemplate = `{% for t in tools %}{{ t.function.name }} {% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% if m.tool_calls %}<|calls|>[{% for c in m.tool_calls %}{{ c.function.name }}({% for k, v in c.function.arguments.items() %}{{ k }}={{ v | tojson }}{{ '' if loop.last else ', ' }}{% endfor %}){{ '' if loop.last else ', ' }}{% endfor %}]<|end|>{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}`
	quotesTemplate = `{% macro write(v) %}{% if v is string %}<|"|>{{ v }}<|"|>{% elif v is mapping %}{{ '{' }}{% for k, x in v.items() %}{{ k }}:{{ write(x) }}{{ '' if loop.last else ',' }}{% endfor %}{{ '}' }}{% elif v is iterable %}[{% for x in v %}{{ write(x) }}{{ '' if loop.last else ',' }}{% endfor %}]{% else %}{{ v | tojson }}{% endif %}{% endmacro %}{% for t in tools %}{{ t.function.name }} {% endfor %}{% for m in messages %}<turn>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls %}<|tool_call>call:{{ c.function.name }}{{ write(c.function.arguments) }}<tool_call|>{% endfor %}<end>
{% endfor %}{% if add_generation_prompt %}<turn>assistant
{% endif %}`
)

// callTemplates are the templates of golden/chat that write calls, and those above.
func callTemplates(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{"tags": tagsTemplate, "keys": keysTemplate, "bare": bareTemplate, "python": pythonTemplate, "quotes": quotesTemplate}
	for _, name := range []string{"05-llama31-tools", "07-mistral-v3-tools", "11-qwen25-tools", "12-qwen3-thinking", "21-granite"} {
		text, err := os.ReadFile(filepath.Join(golden.Dir(t, "chat"), "templates", name+".jinja"))
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	return all
}

func callTemplate(t *testing.T, text string) *Template {
	t.Helper()
	template, err := New(Source{Text: text, BOS: "<s>", EOS: "</s>"})
	if err != nil {
		t.Fatal(err)
	}
	return template
}

var twoTools = []Tool{
	{Name: "get_weather", Parameters: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},"code":{"type":"string"}}}`)},
	{Name: "add", Parameters: json.RawMessage(`{"type":"object","properties":{"numbers":{"type":"array"},"to":{"type":"object"}}}`)},
}

const twoToolsRaw = `[{"type":"function","function":{"name":"get_weather","description":"d","parameters":{"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"},"code":{"type":"string"}}}}},
 {"type":"function","function":{"name":"add","description":"d","parameters":{"type":"object","properties":{"numbers":{"type":"array"},"to":{"type":"object"}}}}}]`

// Claim (docs/serve.md): what a template writes for an answer with calls is read back as these
// calls and the text before them, also where each byte comes by itself: nothing of a call is
// sent as text, and no text is kept back but what may begin a call.
func TestCallsAreReadAsTheTemplateWritesThem(t *testing.T) {
	answers := [][]Call{
		{{"get_weather", `{"city": "Köln \"am\" Rhein", "days": 3, "code": "0012"}`}},
		{{"add", `{"numbers": [1, 2.5, -3], "to": {"deep": [{"x": "}\n"}]}}`}},
		{{"get_weather", `{}`}},
		{{"get_weather", `{"city": "a", "days": 1}`}, {"add", `{"numbers": []}`}, {"get_weather", `{"city": "b"}`}},
	}
	for name, text := range callTemplates(t) {
		template := callTemplate(t, text)
		f, err := template.CallFormat()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, want := range answers {
			if f.Single && len(want) > 1 {
				continue
			}
			answer := answerWith(t, template, f, want)
			content, got := f.Read(answer, twoTools)
			if content != "" || !equalCalls(got, want) {
				t.Errorf("%s: %q is read as %q and %q", name, answer, content, got)
			}
			if strings.TrimSpace(f.begin) == "" {
				continue // calls are all of such an answer
			}
			const before = "Let me see. a < b"
			if content, got := f.Read(before+"\n"+answer, twoTools); content != before || !equalCalls(got, want) {
				t.Errorf("%s: behind text %q is read as %q and %q", name, answer, content, got)
			}
			sent := 0
			for n := range len(before + answer) {
				part := (before + answer)[:n]
				if kept, _ := f.Kept(part); len(part)-kept > len(before) || len(part)-kept < sent {
					t.Fatalf("%s: of %q all but %d bytes would be sent", name, part, kept)
				} else {
					sent = len(part) - kept
				}
			}
			if sent != len(before) {
				t.Errorf("%s: %d bytes of %q were sent", name, sent, before)
			}
		}
	}
}

// answerWith is an answer with calls as the template writes it, without the turn around it.
func answerWith(t *testing.T, template *Template, f *CallFormat, calls []Call) string {
	t.Helper()
	var list []string
	for i, c := range calls {
		arguments := c.Arguments
		if f.TextArguments {
			arguments = quoted(t, arguments)
		}
		list = append(list, fmt.Sprintf(`{"id": "call0000%d", "type": "function", "function": {"name": %q, "arguments": %s}}`, i, c.Name, arguments))
	}
	o := Options{Tools: json.RawMessage(twoToolsRaw)}
	question := json.RawMessage(`{"role": "user", "content": "q"}`)
	full, err := template.Render([]json.RawMessage{question, json.RawMessage(`{"role": "assistant", "content": "", "tool_calls": [` + strings.Join(list, ", ") + `]}`)}, o)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := template.Render([]json.RawMessage{question, json.RawMessage(`{"role": "assistant", "content": "ANSWER"}`)}, o)
	if err != nil {
		t.Fatal(err)
	}
	head, tail, _ := strings.Cut(plain, "ANSWER")
	if at := commonPrefix(head, full); at < len(head) {
		head = head[:at] // a blank before the answer
	}
	return strings.TrimSuffix(strings.TrimSuffix(full[len(head):], tail), "</s>")
}

func quoted(t *testing.T, text string) string {
	t.Helper()
	b, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// equalCalls compares names, and arguments as values.
func equalCalls(a, b []Call) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		var x, y any
		if a[i].Name != b[i].Name || json.Unmarshal([]byte(a[i].Arguments), &x) != nil || json.Unmarshal([]byte(b[i].Arguments), &y) != nil || !reflect.DeepEqual(x, y) {
			return false
		}
	}
	return true
}

// Claim: an answer without calls, or with calls that are cut off or not calls, is all text; what is cut
// off behind sound calls is dropped.
func TestAnswersWithoutSoundCalls(t *testing.T) {
	f, err := callTemplate(t, callTemplates(t)["11-qwen25-tools"]).CallFormat()
	if err != nil {
		t.Fatal(err)
	}
	const call = `<tool_call>` + "\n" + `{"name": "add", "arguments": {"numbers": [1]}}` + "\n</tool_call>"
	for _, answer := range []string{
		"", "plain", "a <tool", "<tool_call>", "<tool_call>\n{", `<tool_call>{"name": "add"`, `<tool_call>{"name": 3, "arguments": {}}</tool_call>`,
		`<tool_call>{"name": "add", "arguments": 7}</tool_call>`, `<tool_call>{"name": "add", "arguments": [1]}</tool_call>`, `{"name": "add", "arguments": {}}`,
		`<tool_call>{"name": "` + strings.Repeat("x", 200) + `", "arguments": {}}</tool_call>`, `<tool_call>[]</tool_call>`, "<tool_call>null</tool_call>",
	} {
		if content, calls := f.Read(answer, twoTools); content != answer || calls != nil {
			t.Errorf("%q is read as %q and %q", answer, content, calls)
		}
	}
	want := []Call{{"add", `{"numbers": [1]}`}}
	for _, answer := range []string{
		call, "\n" + call + "\n\n", call + "\n<tool_call>\n{\"name\": \"add", call + "\nDone.", strings.TrimSuffix(call, "</tool_call>"),
		`<tool_call>{"arguments":{"numbers":[1]},"name":"add","more":1}</tool_call>`, `<tool_call>{"name": "add", "arguments": "{\"numbers\": [1]}"}</tool_call>`,
	} {
		if content, calls := f.Read(answer, twoTools); strings.TrimSpace(content) != "" || !equalCalls(calls, want) {
			t.Errorf("%q is read as %q and %q", answer, content, calls)
		}
	}
	if _, calls := f.Read(`<tool_call>{"name": "add"}</tool_call>`, twoTools); !equalCalls(calls, []Call{{"add", "{}"}}) {
		t.Errorf("a call without arguments is read as %q", calls)
	}
}

// Claim: a template that does not show tools or whose calls are not understood is refused with the
// reason, not read wrongly.
func TestTemplatesWithoutCalls(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"no tools":  {`{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}`, "does not show tools"},
		"no calls":  {`{{ tools | tojson }}{% for m in messages %}{{ m.role }}: {{ m.content }}{% endfor %}`, "does not write tool calls"},
		"a failure": {`{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% if m.tool_calls %}{{ raise_exception('never') }}{% endif %}{% endfor %}`, "does not write tool calls: never"},
		"in words":  {`{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}[{{ c.function.name }}: {% for k, v in c.function.arguments.items() %}{{ k }} is {{ v | tojson }}, {% endfor %}]{% endfor %}{% endfor %}`, "form that is not supported"},
		"channels":  {`{{ tools | tojson }}<|channel|>`, "channels"},
		"two names": {`{{ tools | tojson }}{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}<c>{{ c.function.name }}<n>{{ c.function.name }}<a>{{ c.function.arguments | tojson }}</c>{% endfor %}{% endfor %}`, "form that is not supported"},
	} {
		if f, err := callTemplate(t, c.text).CallFormat(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v; want %q", name, f, err, c.want)
		}
	}
}

// Claim: literals of Python and of templates become JSON; anything but a literal is not a call.
func TestLiterals(t *testing.T) {
	python, gemma := &literals{open: "(", assign: "=", quote: `"`, close: ")"}, &literals{open: "{", assign: ":", quote: `<|"|>`, close: "}"}
	plain := &literals{open: "(", assign: "=", quote: "'", close: ")", plain: true}
	for _, c := range []struct {
		of         *literals
		text, want string
	}{
		{python, `(a=1, b='it\'s "x"', c=True, d=None, e=[1, "2"], f={"k": false}, g=-1.5e3)x`, `{"a": 1, "b": "it's \"x\"", "c": true, "d": null, "e": [1, "2"], "f": {"k": false}, "g": -1.5e3}`},
		{python, `()`, `{}`},
		{python, `(a='C:\\dir\n\x41\u00e9\d', b='ends \\', c="raw
newline", d=(1, 'x',), e=[1,],)`, `{"a": "C:\\dir\nA\u00e9\\d", "b": "ends \\", "c": "raw\nnewline", "d": [1, "x"], "e": [1]}`},
		{plain, `(a='it's C:\dir\n', b='ends \', c='it\'s')`, `{"a": "it's C:\\dir\\n", "b": "ends \\", "c": "it's"}`},
		{gemma, `{a:<|"|>x, {y}<|"|>,b:{c:[true,<|"|><|"|>],d:{}},e:7}`, `{"a": "x, {y}", "b": {"c": [true, ""], "d": {}}, "e": 7}`},
		{python, `(a=1`, ""}, {python, `(a=`, ""}, {python, `(a)`, ""}, {python, `(a=b)`, ""}, {python, `(a=1 b=2)`, ""}, {python, `(a="x)`, ""}, {python, `(a='x)`, ""},
		{gemma, `{a:<|"|>x}`, ""}, {gemma, `{a:[1}`, ""}, {gemma, `{:1}`, ""}, {gemma, `{a:}`, ""},
		{gemma, strings.Repeat("{a:", 100) + "1" + strings.Repeat("}", 100), ""}, {gemma, "{a:" + strings.Repeat("[", 1000), ""},
	} {
		if got, _, ok := c.of.arguments(c.text); ok != (c.want != "") || ok && !equalCalls([]Call{{"f", got}}, []Call{{"f", c.want}}) {
			t.Errorf("%.60s: %s, %v; want %s", c.text, got, ok, c.want)
		}
	}
}

// Claim: arguments come back from a template that writes them in Python's quotes, whether it escapes what is in
// them or not.
func TestQuotesOfTemplates(t *testing.T) {
	const value = `"it's C:\\dir\\new\nend\\"`
	for name, write := range map[string]string{
		"escapes": `'{{ v | replace("\\", "\\\\") | replace("'", "\\'") | replace("\n", "\\n") }}'`,
		"plain":   `'{{ v }}'`,
	} {
		text := strings.Replace(pythonTemplate, `{{ v | tojson }}`, `{% if v is string %}`+write+`{% else %}{{ v | tojson }}{% endif %}`, 1)
		template := callTemplate(t, text)
		f, err := template.CallFormat()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := []Call{{"add", `{"a": ` + value + `, "b": 1}`}}
		answer := answerWith(t, template, f, want)
		if _, calls := f.Read(answer, twoTools); !equalCalls(calls, want) {
			t.Errorf("%s: %q is read as %q", name, answer, calls)
		}
	}
}

// Claim: newlines around an argument between tags belong to it, unless the template writes newlines there.
func TestNewlinesAroundArguments(t *testing.T) {
	for name, text := range map[string]string{"keys": keysTemplate, "tags": tagsTemplate} {
		template := callTemplate(t, text)
		f, err := template.CallFormat()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := []Call{{"add", `{"a": "\nx\n"}`}}
		if _, calls := f.Read(answerWith(t, template, f, want), twoTools); !equalCalls(calls, want) {
			t.Errorf("%s: read as %q", name, calls)
		}
	}
}

// Claim: an argument between tags has the type that the tool's schema takes, also where the template has written a
// value as Python prints it.
func TestTypesOfArguments(t *testing.T) {
	tool := &Tool{Name: "f", Parameters: json.RawMessage(`{"properties": {"s": {"type": "string"}, "o": {"type": ["string", "null"]}, "a": {"anyOf": [{"type": "string"}, {"type": "null"}]},
		"e": {"enum": ["1", "2"]}, "b": {"type": "boolean"}, "n": {"type": "integer"}, "m": {"type": ["string", "integer"]}, "x": {}}}`)}
	for _, c := range []struct{ name, value, want string }{
		{"s", "123", `"123"`}, {"s", "True", `"True"`}, {"s", "null", `"null"`},
		{"o", "123", `"123"`}, {"o", "None", "null"}, {"o", "null", "null"}, {"a", "true", `"true"`}, {"a", "None", "null"},
		{"e", "1", `"1"`}, {"b", "True", "true"}, {"b", "false", "false"}, {"b", "yes", `"yes"`}, {"n", "7", "7"}, {"n", "None", "null"},
		{"m", "7", "7"}, {"m", "x", `"x"`}, {"x", "False", "false"}, {"x", "[1]", "[1]"}, {"x", "[1", `"[1"`}, {"none", "1", "1"},
	} {
		if got, err := tool.argument(c.name, c.value); err != nil || got != c.want {
			t.Errorf("%s=%s: %s, %v; want %s", c.name, c.value, got, err, c.want)
		}
	}
}
