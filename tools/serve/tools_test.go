package serve

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/golden"
)

// toolsTemplate writes calls as JSON objects between tags.
const toolsTemplate = `{% for t in tools or [] %}{{ t.function.name }},{% endfor %}{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{% for c in m.tool_calls %}<c>{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}</c>{% endfor %};{% endfor %}{% if add_generation_prompt %}a:{% endif %}`

// tagTemplate writes each argument between tags.
const tagTemplate = `{% for t in tools or [] %}{{ t.function.name }},{% endfor %}{% for m in messages %}{{ m.role[0] }}:{{ m.content }}{% for c in m.tool_calls %}<c>{{ c.function.name }}
{% for k, v in c.function.arguments.items() %}<k>{{ k }}</k><v>{{ v }}</v>
{% endfor %}</c>{% endfor %};{% endfor %}{% if add_generation_prompt %}a:{% endif %}`

// toolServer serves the golden model with more positions, which calls need, and a template.
func toolServer(t *testing.T, template string) string {
	t.Helper()
	dir := t.TempDir()
	source := golden.Dir(t, "serve", "model")
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name), string(data))
	}
	config, err := os.ReadFile(filepath.Join(source, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "config.json"), strings.NewReplacer(`"n_positions": 64`, `"n_positions": 512`, `"n_ctx": 64`, `"n_ctx": 512`).Replace(string(config)))
	weights, err := os.ReadFile(filepath.Join(source, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "model.safetensors"), string(morePositions(t, weights, 512)))
	write(t, filepath.Join(dir, "template"), template)
	return start(t, "--load", dir, "--chat-template", filepath.Join(dir, "template"))
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// morePositions repeats the table of positions in a file of safetensors.
func morePositions(t *testing.T, file []byte, n int64) []byte {
	t.Helper()
	type tensor struct {
		DType   string   `json:"dtype"`
		Shape   []int64  `json:"shape"`
		Offsets [2]int64 `json:"data_offsets"`
	}
	size := binary.LittleEndian.Uint64(file)
	var header map[string]json.RawMessage
	if err := json.Unmarshal(file[8:8+size], &header); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	var data []byte
	for name, raw := range header {
		var x tensor
		if err := json.Unmarshal(raw, &x); err != nil {
			t.Fatal(err)
		}
		values := file[8+int64(size)+x.Offsets[0] : 8+int64(size)+x.Offsets[1]]
		x.Offsets[0] = int64(len(data))
		if strings.HasSuffix(name, "wpe.weight") {
			for have := x.Shape[0]; x.Shape[0] < n; x.Shape[0] += have {
				data = append(data, values...)
			}
		}
		data = append(data, values...)
		x.Offsets[1] = int64(len(data))
		var err error
		if header[name], err = json.Marshal(x); err != nil {
			t.Fatal(err)
		}
	}
	text, err := json.Marshal(header)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), data...)
}

// toolAnswer is an answer, or one event of a streamed one.
type toolAnswer struct {
	Choices []struct {
		Index          int
		Message, Delta struct {
			Content   *string
			ToolCalls []struct {
				Index    *int
				ID, Type string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		FinishReason *string `json:"finish_reason"`
	}
}

func toolsBody(choice any, more map[string]any) map[string]any {
	tool := func(name string, properties map[string]any, required ...string) map[string]any {
		return map[string]any{"type": "function", "function": map[string]any{"name": name, "strict": more["strict"] == true,
			"parameters": map[string]any{"type": "object", "properties": properties, "required": required, "additionalProperties": false}}}
	}
	body := map[string]any{"messages": []any{map[string]any{"role": "user", "content": "x"}}, "max_tokens": 150, "tool_choice": choice,
		"tools": []any{
			tool("add", map[string]any{"a": map[string]any{"type": "integer"}, "b": map[string]any{"enum": []any{1, 2}}}, "a", "b"),
			tool("say", map[string]any{"text": map[string]any{"type": "string", "maxLength": 4}}, "text"),
		}}
	for k, v := range more {
		if k != "strict" {
			body[k] = v
		}
	}
	return body
}

// checkCall requires a call of one of the two tools with arguments of its schema.
func checkCall(name, arguments string) error {
	switch name {
	case "add":
		var a struct{ A, B *int }
		if err := json.Unmarshal([]byte(arguments), &a); err != nil || a.A == nil || a.B == nil || *a.B < 1 || *a.B > 2 {
			return fmt.Errorf("add%s: %v", arguments, err)
		}
	case "say":
		var a struct{ Text *string }
		if err := json.Unmarshal([]byte(arguments), &a); err != nil || a.Text == nil || len([]rune(*a.Text)) > 4 {
			return fmt.Errorf("say%s: %v", arguments, err)
		}
	default:
		return fmt.Errorf("no tool has the name %q", name)
	}
	return nil
}

// Claim (docs/serve.md): with tool_choice required or a function every answer that ends is calls whose
// arguments are of the tool's schema, by templates with JSON and with tags, streamed or not.
func TestForcedCalls(t *testing.T) {
	for name, template := range map[string]string{"objects": toolsTemplate, "tags": tagTemplate} {
		t.Run(name, func(t *testing.T) {
			url := toolServer(t, template)
			for choice, tools := range map[string]string{`"required"`: "add say", `{"type":"function","function":{"name":"say"}}`: "say"} {
				for _, more := range []map[string]any{{"temperature": 0}, {"temperature": 1, "seed": 3, "n": 6}, {"temperature": 4, "seed": 4, "n": 6, "parallel_tool_calls": false}} {
					status, raw := request(t, "POST", url+"/v1/chat/completions", toolsBody(json.RawMessage(choice), more))
					var answer toolAnswer
					if err := json.Unmarshal(raw, &answer); err != nil || status != 200 {
						t.Fatalf("%s: %d %s", choice, status, raw)
					}
					for _, c := range answer.Choices {
						if *c.FinishReason == "length" {
							continue // cut off: its calls may not be complete
						}
						if *c.FinishReason != "tool_calls" || c.Message.Content != nil || len(c.Message.ToolCalls) == 0 {
							t.Fatalf("%s: %s", choice, raw)
						}
						for _, call := range c.Message.ToolCalls {
							if err := checkCall(call.Function.Name, call.Function.Arguments); err != nil || !strings.Contains(tools, call.Function.Name) || len(call.ID) != 9 || call.Type != "function" {
								t.Errorf("%s: %+v: %v", choice, call, err)
							}
						}
						if n := len(c.Message.ToolCalls); n > 1 && (more["parallel_tool_calls"] == false || choice != `"required"`) {
							t.Errorf("%s: %d calls", choice, n)
						}
					}
				}
			}
			streamedCalls(t, url)
		})
	}
}

// streamedCalls requires that a streamed answer has the same calls as a complete one, and no text.
func streamedCalls(t *testing.T, url string) {
	t.Helper()
	body := toolsBody("required", map[string]any{"temperature": 1, "seed": 8})
	_, raw := request(t, "POST", url+"/v1/chat/completions", body)
	var want, part toolAnswer
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	body["stream"] = true
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	content, reason, made := "", "", 0
	for lines := bufio.NewScanner(reply.Body); lines.Scan(); {
		data, is := strings.CutPrefix(lines.Text(), "data: {")
		if !is {
			continue
		}
		part = toolAnswer{}
		if err := json.Unmarshal([]byte("{"+data), &part); err != nil {
			t.Fatal(err)
		}
		for _, c := range part.Choices {
			if c.Delta.Content != nil {
				content += *c.Delta.Content
			}
			for _, call := range c.Delta.ToolCalls {
				if complete := want.Choices[0].Message.ToolCalls[made]; call.Index == nil || *call.Index != made || call.Function != complete.Function {
					t.Errorf("streamed %+v, else %+v", call, complete)
				}
				made++
			}
			if c.FinishReason != nil {
				reason = *c.FinishReason
			}
		}
	}
	if content != "" || made != len(want.Choices[0].Message.ToolCalls) || reason != *want.Choices[0].FinishReason {
		t.Errorf("streamed %q, %d calls, %s", content, made, reason)
	}
}

// Claim (docs/serve.md): with strict tools every call in an answer of tool_choice auto is valid, and an
// answer may be text; without tools in tool_choice none the model does not see them.
func TestToolsThatMayBeCalled(t *testing.T) {
	url := toolServer(t, toolsTemplate)
	for seed := range 6 {
		status, raw := request(t, "POST", url+"/v1/chat/completions", toolsBody("auto", map[string]any{"strict": true, "temperature": 1, "seed": seed, "max_tokens": 60}))
		var answer toolAnswer
		if err := json.Unmarshal(raw, &answer); err != nil || status != 200 || len(answer.Choices) != 1 {
			t.Fatalf("%d %s", status, raw)
		}
		for _, call := range answer.Choices[0].Message.ToolCalls {
			if err := checkCall(call.Function.Name, call.Function.Arguments); err != nil {
				t.Error(err)
			}
		}
	}
	count := func(more map[string]any) (n struct{ Count int }) {
		body := map[string]any{"messages": []any{map[string]any{"role": "user", "content": "x"}}}
		for k, v := range more {
			body[k] = v
		}
		if status, raw := request(t, "POST", url+"/tokenize", body); status != 200 || json.Unmarshal(raw, &n) != nil {
			t.Fatalf("%d %s", status, raw)
		}
		return n
	}
	if with, without := count(map[string]any{"tools": toolsBody("auto", nil)["tools"]}), count(nil); with.Count != without.Count+len("add,say,") {
		t.Errorf("%d tokens with tools, %d without", with.Count, without.Count)
	}
	_, raw := request(t, "POST", url+"/v1/chat/completions", toolsBody("none", map[string]any{"max_tokens": 1}))
	if want := fmt.Sprintf(`"prompt_tokens":%d`, count(nil).Count); !strings.Contains(string(raw), want) {
		t.Errorf("tool_choice none: %s; want %s", raw, want)
	}
	// A call and its result in the conversation: arguments as OpenAI's clients send them.
	conversation := []any{map[string]any{"role": "user", "content": "x"},
		map[string]any{"role": "assistant", "content": nil, "tool_calls": []any{map[string]any{"id": "call00001", "type": "function", "function": map[string]any{"name": "add", "arguments": `{"a":1}`}}}},
		map[string]any{"role": "tool", "tool_call_id": "call00001", "content": "2"}}
	if got, want := count(map[string]any{"messages": conversation}).Count, len(`u:x;a:<c>{"name": "add", "arguments": {"a": 1}}</c>;t:2;a:`); got != want {
		t.Errorf("%d tokens of a conversation with calls; want %d", got, want)
	}
}

// Claim: what is wrong about tools is refused with the field's name.
func TestToolsThatAreRefused(t *testing.T) {
	url := toolServer(t, toolsTemplate)
	const one = `{"type":"function","function":{"name":"f"}}`
	message := `"messages":[{"role":"user","content":"x"}]`
	for body, want := range map[string]string{
		`{` + message + `,"tools":{}}`:                                                                              `tools: the value must be a list of`,
		`{` + message + `,"tools":[{"type":"code"}]}`:                                                               `tool 0 has the type \"code\"`,
		`{` + message + `,"tools":[{"type":"function"}]}`:                                                           `tool 0 has the name \"\"`,
		`{` + message + `,"tools":[` + one + `,` + one + `]}`:                                                       `two tools have the name f`,
		`{` + message + `,"tools":[` + strings.Repeat(one+",", 128) + one + `]}`:                                    `129 tools; at most 128`,
		`{` + message + `,"tools":[` + one + `],"tool_choice":"all"}`:                                               `\"all\" is not supported; choose from`,
		`{` + message + `,"tools":[` + one + `],"tool_choice":{"type":"function","function":{"name":"g"}}}`:         `the tool \"g\" is not in tools`,
		`{` + message + `,"tool_choice":"required"}`:                                                                `needs tools`,
		`{` + message + `,"functions":[]}`:                                                                          `use tools`,
		`{` + message + `,"tools":[` + one + `],"tool_choice":"required","response_format":{"type":"json_object"}}`: `cannot be combined with calls`,
		`{` + message + `,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","pattern":"x"}}}],"tool_choice":"required"}`: `tool 0: #: pattern is not supported`,
		`{"messages":[{"role":"user","content":"x","tool_calls":[]}]}`:                                                                                  `message 0 has tool_calls, which only`,
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"[1]"}}]}]}`:                                                `message 0 has a call (number 0) of \"f\" whose arguments`,
		`{"messages":[{"role":"assistant","tool_calls":[{}]}]}`:                                                                                         `message 0 has a call (number 0) without`,
		`{"messages":[{"role":"assistant","tool_calls":7}]}`:                                                                                            `tool_calls that are not a list`,
	} {
		if status, raw := request(t, "POST", url+"/v1/chat/completions", body); status != 400 || !strings.Contains(string(raw), want) {
			t.Errorf("%.120s: %d %s; want %s", body, status, raw, want)
		}
	}
	if status, raw := request(t, "POST", start(t, "--load", golden.Dir(t, "serve", "model"))+"/v1/chat/completions", `{`+message+`,"tools":[`+one+`]}`); status != 400 || !strings.Contains(string(raw), "does not show tools") {
		t.Errorf("%d %s", status, raw)
	}
}

// Claim: random schemas of arguments, a hundred of them: every forced call has arguments of its schema.
func TestForcedCallsOfRandomSchemas(t *testing.T) {
	url := toolServer(t, toolsTemplate)
	random, complete := rand.New(rand.NewPCG(11, 1)), 0
	for n := range 100 {
		properties, required, kinds := map[string]any{}, []string{}, map[string]string{}
		for i := range 1 + random.IntN(4) {
			name := fmt.Sprintf("p%d", i)
			kinds[name] = []string{"integer", "boolean", "string", "null"}[random.IntN(4)]
			properties[name] = map[string]any{"type": kinds[name]}
			if kinds[name] == "string" {
				properties[name] = map[string]any{"type": "string", "maxLength": 3}
			}
			if random.IntN(2) == 0 {
				required = append(required, name)
			}
		}
		tool := map[string]any{"type": "function", "function": map[string]any{"name": "f", "parameters": map[string]any{"type": "object", "properties": properties, "required": required}}}
		status, raw := request(t, "POST", url+"/v1/chat/completions", map[string]any{"messages": []any{map[string]any{"role": "user", "content": "x"}}, "max_tokens": 200, "temperature": 2, "seed": n,
			"tools": []any{tool}, "tool_choice": "required", "parallel_tool_calls": false})
		var answer toolAnswer
		if err := json.Unmarshal(raw, &answer); err != nil || status != 200 {
			t.Fatalf("%d %s", status, raw)
		}
		if *answer.Choices[0].FinishReason == "length" {
			continue
		}
		complete++
		var arguments map[string]any
		if err := json.Unmarshal([]byte(answer.Choices[0].Message.ToolCalls[0].Function.Arguments), &arguments); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		for _, name := range required {
			if _, has := arguments[name]; !has {
				t.Errorf("%v lacks %s", arguments, name)
			}
		}
		for name, value := range arguments {
			of := map[string]bool{"integer": isA[float64](value), "boolean": isA[bool](value), "string": isA[string](value), "null": value == nil}
			if !of[kinds[name]] {
				t.Errorf("%s is %v, no %s", name, value, kinds[name])
			}
		}
	}
	if complete < 80 {
		t.Errorf("only %d of 100 answers were complete", complete)
	}
}

func isA[T any](v any) bool { _, is := v.(T); return is }
