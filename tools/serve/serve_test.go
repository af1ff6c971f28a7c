package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
	"monotron/internal/golden"
	"monotron/megatron/inference"
	"monotron/megatron/plan"
)

// start serves a folder until the test ends, and returns its address.
func start(t *testing.T, args ...string) string {
	t.Helper()
	url, lines := startTelling(t, args...)
	go func() {
		for range lines {
		}
	}()
	return url
}

// startTelling is start with the lines that the server prints after it is ready.
func startTelling(t *testing.T, args ...string) (url string, reported <-chan string) {
	t.Helper()
	notes, w := io.Pipe()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- call(ctx, w, append([]string{"--port", "0", "--drain-timeout", "1"}, args...)...) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("serve ended with %v", err)
		}
	})
	lines, rest := bufio.NewScanner(notes), make(chan string, 100)
	for lines.Scan() {
		if _, at, found := strings.Cut(lines.Text(), "listening at "); found {
			url, _, _ = strings.Cut(at, "/,")
		}
		if strings.HasPrefix(lines.Text(), "ready") {
			go func() {
				defer close(rest)
				for lines.Scan() {
					rest <- lines.Text()
				}
			}()
			return url, rest
		}
	}
	t.Fatal("the server was never ready: ", <-ended)
	return "", nil
}

func call(ctx context.Context, notes io.WriteCloser, args ...string) error {
	defer notes.Close()
	open := func(string) (*device.Device, error) { return ref.Open(), nil }
	app := &cli.App{Commands: []*cli.Command{Command(open)}, Writer: io.Discard, ErrWriter: notes, ExitErrHandler: func(*cli.Context, error) {}}
	return app.RunContext(ctx, append([]string{"monotron", "serve"}, args...))
}

func goldenServer(t *testing.T) (url string, want expected) {
	dir := golden.Dir(t, "serve")
	data, err := os.ReadFile(filepath.Join(dir, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatal(err)
	}
	return start(t, "--load", filepath.Join(dir, "model")), want
}

// expected are transformers' answers.
type expected struct {
	Tolerance   float64 `json:"logprob_tolerance"`
	Context     int     `json:"context_length"`
	Completions []struct {
		Prompt         string
		PromptIDs      []int32    `json:"prompt_ids"`
		PromptLogProbs []*float64 `json:"prompt_log_probs"`
		Text           string
		LogProbs       []*float64 `json:"log_probs"`
	}
	Chat []struct {
		Messages  json.RawMessage
		PromptIDs []int32 `json:"prompt_ids"`
		Text      string
	}
}

// request sends a request and reads its answer; a text stands for itself.
func request(t *testing.T, method, url string, body any) (status int, answer []byte) {
	t.Helper()
	data, isText := body.(string)
	if !isText {
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		data = string(raw)
	}
	r, err := http.NewRequest(method, url, strings.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if answer, err = io.ReadAll(reply.Body); err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, answer
}

type completionAnswer struct {
	Choices []struct {
		Text         string
		FinishReason string `json:"finish_reason"`
		Logprobs     *struct {
			LogProbs []*float64 `json:"token_logprobs"`
		}
		Message, Delta struct{ Content string }
	}
	Usage map[string]any
}

func parsed(t *testing.T, status int, body []byte) (a completionAnswer) {
	t.Helper()
	if status != 200 {
		t.Fatalf("status %d: %s", status, body)
	}
	if err := json.Unmarshal(body, &a); err != nil {
		t.Fatal(err)
	}
	return a
}

// Claim: texts and log-probabilities are transformers' (golden/serve), complete and streamed,
// with stops across tokens, as completions and as chats.
func TestAnswersOfAnotherProgram(t *testing.T) {
	url, want := goldenServer(t)
	for _, c := range want.Completions {
		q := map[string]any{"prompt": c.Prompt, "max_tokens": 24, "temperature": 0, "logprobs": 1, "echo": true}
		status, body := request(t, "POST", url+"/v1/completions", q)
		got := parsed(t, status, body).Choices[0]
		if got.Text != c.Prompt+c.Text || got.FinishReason != "length" {
			t.Errorf("%q: %q (%s), want %q", c.Prompt, got.Text, got.FinishReason, c.Text)
		}
		for i, p := range append(c.PromptLogProbs, c.LogProbs...) {
			if g := got.Logprobs.LogProbs[i]; (g == nil) != (p == nil) || p != nil && math.Abs(*g-*p) > want.Tolerance {
				t.Errorf("%q: log-probability %d is %v", c.Prompt, i, g)
			}
		}
		stop := c.Text[7:10]
		q = map[string]any{"prompt": c.PromptIDs, "max_tokens": 24, "temperature": 0, "stop": stop, "stream": true}
		_, body = request(t, "POST", url+"/v1/completions", q)
		if text := streamed(t, body); text != c.Text[:strings.Index(c.Text, stop)] {
			t.Errorf("%q to %q streams as %q", c.Text, stop, text)
		}
	}
	for _, c := range want.Chat {
		q := map[string]any{"messages": c.Messages, "max_completion_tokens": 12, "temperature": 0}
		status, body := request(t, "POST", url+"/v1/chat/completions", q)
		if got := parsed(t, status, body); got.Choices[0].Message.Content != c.Text || got.Usage["prompt_tokens"] != float64(len(c.PromptIDs)) {
			t.Errorf("%s: %s, want %q", c.Messages, body, c.Text)
		}
		q["stream"] = true
		if _, body = request(t, "POST", url+"/v1/chat/completions", q); streamed(t, body) != c.Text {
			t.Errorf("%s streams as %s", c.Messages, body)
		}
	}
}

// streamed joins the texts of server-sent events.
func streamed(t *testing.T, body []byte) (text string) {
	t.Helper()
	events := strings.Split(strings.TrimSuffix(string(body), "\n\n"), "\n\n")
	if events[len(events)-1] != "data: [DONE]" {
		t.Fatalf("the stream ends with %q", events[len(events)-1])
	}
	for _, e := range events[:len(events)-1] {
		var a completionAnswer
		if err := json.Unmarshal([]byte(strings.TrimPrefix(e, "data: ")), &a); err != nil {
			t.Fatalf("%q: %v", e, err)
		}
		text += a.Choices[0].Text + a.Choices[0].Delta.Content
	}
	return text
}

// Claim: a model whose numbers are not finite is the server's fault, not the request's.
func TestBrokenModelIsNotTheRequestsFault(t *testing.T) {
	p := problemOf(exitcode.With(exitcode.BadData, &inference.NotFinite{Token: 7, Logit: float32(math.Inf(1))}))
	if p.Status != http.StatusInternalServerError || p.Type != "server_error" || !strings.HasPrefix(p.Message, "the logit of token 7 is +Inf") {
		t.Errorf("%+v", p)
	}
}

// Claim: what is wrong with a request is said in OpenAI's form, with the field.
func TestRefusals(t *testing.T) {
	url, want := goldenServer(t)
	for _, c := range []struct {
		address, body string
		status        int
		param, says   string
	}{
		{"/v1/completions", `{"prompt": "x", "temperature": "hot"}`, 400, "temperature", "temperature: the value is of type string, but must be of type float64"},
		{"/v1/completions", `{"prompt": "x", "temperature": -1, "top_p": 2}`, 400, "temperature", "temperature: the value must be from 0 to 100, not -1; top_p: the value must be from 0 to 1, not 2"},
		{"/v1/completions", `{"prompt": {"a": 1}}`, 400, "prompt", "prompt: the value must be a string, a list of strings, a list of token ids, or a list of lists of token ids"},
		{"/v1/completions", `{"n": 1, "prompt": "a\ud83d"}`, 400, "prompt", `prompt: the value is not valid text: byte 21: a lone surrogate (\ud800 to \udfff without the other half), which is not a character`},
		{"/v1/completions", "{\"prompt\": \"a\", \"stop\": [\"\xff\"]}", 400, "stop", "stop: the value is not valid text: byte 26: 0xff is not UTF-8"},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": [{"type": "text", "text": "\ude00"}]}]}`, 400, "messages", `messages: the value is not valid text: byte 69: a lone surrogate (\ud800 to \udfff without the other half), which is not a character`},
		{"/tokenize", `{"prompt": "a\ude00"}`, 400, "prompt", `prompt: the value is not valid text: byte 13: a lone surrogate (\ud800 to \udfff without the other half), which is not a character`},
		{"/api", `{"prompts": ["a\ud83d"]}`, 400, "prompts", `prompts: the value is not valid text: byte 15: a lone surrogate (\ud800 to \udfff without the other half), which is not a character`},
		{"/v1/completions", `{"prompt": [null, 1]}`, 400, "prompt", "prompt: null is not a token id"},
		{"/v1/completions", `{"prompt": [1, 100000]}`, 400, "", "token 1 of the prompt is 100000; the model's vocabulary has 128 ids"},
		{"/v1/completions", fmt.Sprintf(`{"prompt": "x", "max_tokens": %d}`, want.Context), 400, "max_tokens", "the prompt has 1 tokens, which together with 64 tokens to generate exceed the model's 64 positions"},
		{"/v1/completions", `{"prompt": "x", "max_tokens": 9223372036854775807}`, 400, "max_tokens", "the prompt has 1 tokens, which together with 9223372036854775807 tokens to generate exceed the model's 64 positions"},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "x"}], "max_tokens": 9223372036854775800}`, 400, "max_tokens", "the prompt has 18 tokens, which together with 9223372036854775800 tokens to generate exceed the model's 64 positions"},
		{"/v1/completions", `{"prompt": "x", "n": 9223372036854775807, "best_of": 9223372036854775807}`, 400, "n", "n: the value must be from 1 to 128, not 9223372036854775807"},
		{"/v1/completions", `{"prompt": "x", "logit_bias": {` + numbered(1025, `"%d": 1`) + `}}`, 400, "logit_bias", "logit_bias: there are 1025 tokens; at most 1024 are allowed"},
		{"/v1/completions", `{"prompt": "x", "stop_token_ids": [` + numbered(1025, "%d") + `]}`, 400, "stop_token_ids", "stop_token_ids: there are 1025 ids; at most 1024 are allowed"},
		{"/v1/completions", `{"prompt": [` + numbered(1025, `"x%d"`) + `]}`, 400, "prompt", "prompt: the request asks for 1025 texts; at most 1024 are allowed (--max-queue)"},
		{"/v1/completions", `{"prompt": "x", "model": "other"}`, 404, "model", `unknown model "other"; this server has "model"`},
		{"/v1/completions", `{"model": `, 400, "", "the body of the request must be a JSON object: unexpected end of JSON input"},
		{"/v1/chat/completions", `{"messages": [{"content": "x"}]}`, 400, "messages", "messages: message 0 must be an object with a role"},
		{"/v1/chat/completions", `{"messages": [{"role": "user"}]}`, 400, "messages", "messages: message 0 has content that is not text"},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "f"}}]}`, 400, "tools", "tools: the chat template does not show tools to the model"},
		{"/v1/chat/completions", `{"messages": [{"role": "assistant", "content": "x"}], "continue_final_message": true}`, 400, "continue_final_message", "continue_final_message: this field needs add_generation_prompt: false"},
		{"/tokenize", `{"messages": [{"role": "assistant", "content": "x"}], "continue_final_message": true, "add_generation_prompt": true}`, 400, "continue_final_message", "continue_final_message: this field needs add_generation_prompt: false"},
		{"/tokenize", `{"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"messages": []}}`, 400, "messages", "messages: the chat template: the variable messages cannot be set, because the request has its own field of that name"},
		{"/api", `{"prompts": ["x"], "beam_width": 4}`, 400, "beam_width", "beam_width: this server does not support beam search; use monotron generate"},
		{"/nowhere", `{}`, 404, "", `the path "/nowhere" does not exist on this server`},
		{"/v1/completions", strings.Repeat("x", 5<<20), 413, "", "the request is larger than 4194304 bytes"},
	} {
		status, body := request(t, "POST", url+c.address, c.body)
		var got struct {
			Error struct{ Message, Type, Param, Code *string }
		}
		if err := json.Unmarshal(body, &got); err != nil || got.Error.Message == nil || got.Error.Type == nil {
			t.Errorf("%s %.60s: %s", c.address, c.body, body)
			continue
		}
		param := ""
		if got.Error.Param != nil {
			param = *got.Error.Param
		}
		if status != c.status || param != c.param || *got.Error.Message != c.says {
			t.Errorf("%s %.60s: %d %q %q", c.address, c.body, status, param, *got.Error.Message)
		}
	}
	if status, _ := request(t, "GET", url+"/v1/completions", ""); status != 405 {
		t.Errorf("GET of completions: %d", status)
	}
}

// Claim (vLLM's field, transformers' text): continue_final_message ends the prompt inside the last message.
func TestContinueFinalMessage(t *testing.T) {
	url, _ := goldenServer(t)
	text := func(fields string) string {
		status, body := request(t, "POST", url+"/tokenize", `{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I am"}], "add_generation_prompt": false`+fields+`}`)
		status2, back := request(t, "POST", url+"/detokenize", string(body))
		var a struct{ Prompt string }
		if err := json.Unmarshal(back, &a); err != nil || status != 200 || status2 != 200 {
			t.Fatalf("%d %s, %d %s", status, body, status2, back)
		}
		return a.Prompt
	}
	all, begun := text(""), text(`, "continue_final_message": true`)
	if !strings.HasSuffix(begun, "I am") || !strings.HasPrefix(all, begun) || all == begun {
		t.Errorf("%q of %q", begun, all)
	}
}

// numbered is a list of n items of a JSON text.
func numbered(n int, format string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(list, ",")
}

// Claim: with keys nobody else asks, but health is seen.
func TestKeys(t *testing.T) {
	keys := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(keys, []byte("# team\nsecret\n\nother\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url := start(t, "--load", golden.Dir(t, "serve", "model"), "--api-key-file", keys)
	for header, want := range map[string]int{"": 401, "Bearer secre": 401, "Bearer secret": 200, "Bearer other": 200, "secret": 200, "Bearer # team": 401} {
		r, _ := http.NewRequest("GET", url+"/v1/models", nil)
		if header != "" {
			r.Header.Set("Authorization", header)
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		if reply.StatusCode != want {
			t.Errorf("%q: %d, want %d", header, reply.StatusCode, want)
		}
	}
	if status, _ := request(t, "GET", url+"/health", ""); status != 200 {
		t.Errorf("health: %d", status)
	}
}

// Claim: /metrics has vLLM's names after ours, and blocks of clients that left are free.
func TestMetricsAndLeaving(t *testing.T) {
	url, _ := goldenServer(t)
	for range 20 {
		ctx, leave := context.WithCancel(context.Background())
		r, _ := http.NewRequestWithContext(ctx, "POST", url+"/v1/completions", strings.NewReader(`{"prompt": "O", "max_tokens": 60, "stream": true}`))
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		io.ReadFull(reply.Body, make([]byte, 10))
		leave()
		reply.Body.Close()
	}
	deadline := time.Now().Add(5 * time.Minute)
	for {
		_, body := request(t, "GET", url+"/metrics", "")
		free := bytes.Contains(body, []byte(`monotron:kv_cache_usage_perc{model_name="model"} 0`+"\n"))
		idle := bytes.Contains(body, []byte(`monotron:num_requests_running{model_name="model"} 0`+"\n"))
		if free && idle {
			for _, name := range []string{"num_requests_waiting", "prefix_cache_queries", "prefix_cache_hits", "num_preemptions_total", "prompt_tokens_total", "generation_tokens_total",
				"request_success_total", "time_to_first_token_seconds_bucket", "inter_token_latency_seconds_sum", "e2e_request_latency_seconds_count", "request_queue_time_seconds_count",
				"request_prefill_time_seconds_count", "request_decode_time_seconds_count", "iteration_tokens_total_count"} {
				if !bytes.Contains(body, []byte("\nmonotron:"+name+"{")) {
					t.Errorf("no monotron:%s", name)
				}
			}
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("blocks of those who left are still in use:\n%s", body)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Claim: ranks that share the model serve the same texts.
func TestRanksServe(t *testing.T) {
	_, want := goldenServer(t)
	dir := golden.Dir(t, "serve", "model")
	for _, layout := range [][]string{{"--tensor-model-parallel-size", "2"}, {"--pipeline-model-parallel-size", "2"}, {"--tensor-model-parallel-size", "2", "--pipeline-model-parallel-size", "2"}} {
		url := start(t, append([]string{"--load", dir}, layout...)...)
		for _, c := range want.Completions {
			status, body := request(t, "POST", url+"/v1/completions", map[string]any{"prompt": c.Prompt, "max_tokens": 24, "temperature": 0})
			if got := parsed(t, status, body).Choices[0].Text; got != c.Text {
				t.Errorf("%v: %q, want %q", layout, got, c.Text)
			}
		}
	}
}

// Claim: Megatron's clients get texts and segments with their prompts.
func TestMegatronsWay(t *testing.T) {
	url, want := goldenServer(t)
	c := want.Completions[0]
	status, body := request(t, "PUT", url+"/api", map[string]any{"prompts": []string{c.Prompt}, "tokens_to_generate": 24, "logprobs": true})
	var got struct {
		Text     []string
		Segments [][]string
		LogProbs [][]float64
	}
	if err := json.Unmarshal(body, &got); err != nil || status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	if got.Text[0] != c.Prompt+c.Text || strings.Join(got.Segments[0], "") != c.Prompt+c.Text || len(got.LogProbs[0]) != len(c.Prompt)+24-1 {
		t.Errorf("%s", body)
	}
}

// Claim: all that is wrong with the flags is said at once.
func TestFlags(t *testing.T) {
	for line, want := range map[string]string{
		"":                             "--load is missing; give the folder of the model",
		"--load /nowhere --port 99999": "--port must be from 0 to 65535, not 99999",
		"--load x --max-num-seqs 64 --max-num-batched-tokens 32 --fp32 --bf16": "--max-num-batched-tokens must be at least --max-num-seqs 64, not 32\n--fp32, --bf16 and --fp16 cannot be combined; give one",
	} {
		_, w := io.Pipe()
		if err := call(context.Background(), w, strings.Fields(line)...); exitcode.CodeOf(err) != exitcode.Usage || err.Error() != want {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// Claim: a --load without a checkpoint is refused before the server listens.
func TestNothingToLoad(t *testing.T) {
	for _, dir := range []string{"/nowhere", t.TempDir()} {
		var notes said
		if err := call(context.Background(), &notes, "--load", dir, "--port", "0"); exitcode.CodeOf(err) != exitcode.NoInput || !strings.HasPrefix(err.Error(), "--load: ") || notes.Len() > 0 {
			t.Errorf("%s: %v, after %q", dir, err, notes.String())
		}
	}
}

// said is what a command has written.
type said struct{ bytes.Buffer }

func (*said) Close() error { return nil }

type discard struct{ io.Closer }

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// Claim: a server whose keys and values cannot be in this machine's memory ends at its start.
func TestTooMuchMemory(t *testing.T) {
	if plan.HostCapacity().Bytes == math.MaxInt64 {
		t.Skip("what is free is not known here")
	}
	notes, w := io.Pipe()
	go io.Copy(io.Discard, notes)
	err := call(context.Background(), w, "--port", "0", "--load", filepath.Join(golden.Dir(t, "serve"), "model"), "--kv-cache-memory", "1073741824")
	if err == nil || !strings.Contains(err.Error(), "--kv-cache-memory 1073741824: keys and values") || exitcode.CodeOf(err) != exitcode.Usage {
		t.Errorf("1 PiB: %v", err)
	}
}

// Claim: a request's model field chooses the base or an adapter, which /v1/models lists; what the base
// answers is what it answers without adapters.
func TestAdaptersByName(t *testing.T) {
	dir := filepath.Join(golden.Dir(t, "merge"), "gpt2-f32-dora")
	plain := start(t, "--load", filepath.Join(dir, "base"))
	several := []string{"--load", filepath.Join(dir, "base"), "--adapter", "tuned=" + filepath.Join(dir, "adapter"), "--adapter", "again=" + filepath.Join(dir, "adapter")}
	both := start(t, several...)
	merged := start(t, "--load", filepath.Join(dir, "merged"))
	ask := func(url, model string) (name string, text string) {
		body := map[string]any{"prompt": []int{1, 2, 3, 4}, "max_tokens": 0, "echo": true, "logprobs": 0}
		if model != "" {
			body["model"] = model
		}
		status, answer := request(t, "POST", url+"/v1/completions", body)
		var a struct {
			Model   string
			Choices []struct {
				Logprobs struct {
					LogProbs []*float64 `json:"token_logprobs"`
				}
			}
		}
		if err := json.Unmarshal(answer, &a); err != nil || status != 200 {
			t.Fatalf("%s: status %d, %v: %s", model, status, err, answer)
		}
		for _, p := range a.Choices[0].Logprobs.LogProbs[1:] {
			text += fmt.Sprintf(" %.4f", *p)
		}
		return a.Model, text
	}
	_, base := ask(plain, "")
	_, want := ask(merged, "")
	for _, url := range []string{both, start(t, append(several, "--tensor-model-parallel-size", "2")...), start(t, append(several, "--pipeline-model-parallel-size", "2")...)} {
		for model, w := range map[string]string{"": base, "base": base, "tuned": want, "again": want} {
			if name, got := ask(url, model); got != w || model != "" && name != model {
				t.Errorf("model %q: %s says%s, want%s", model, name, got, w)
			}
		}
	}
	if base == want {
		t.Errorf("the adapter changes nothing: %s", base)
	}
	_, list := request(t, "GET", both+"/v1/models", "")
	for _, part := range []string{`"id":"base"`, `"id":"tuned"`, `"id":"again"`, `"parent":"base"`} {
		if !strings.Contains(strings.ReplaceAll(string(list), " ", ""), part) {
			t.Errorf("no %s in %s", part, list)
		}
	}
	if status, answer := request(t, "POST", both+"/v1/completions", map[string]any{"prompt": []int{1}, "model": "other"}); status != 404 || !strings.Contains(string(answer), "again") {
		t.Errorf("another model: status %d, %s", status, answer)
	}
}

// Claim: adapters that cannot be served are refused at the start.
func TestAdaptersAreRefused(t *testing.T) {
	dir := filepath.Join(golden.Dir(t, "merge"), "gpt2-f32-dora")
	for says, args := range map[string][]string{
		"--adapter x is not of the form NAME=DIR":    {"--adapter", "x"},
		"the model or another":                       {"--adapter", "base=" + dir},
		"--follow cannot be combined with --adapter": {"--adapter", "a=" + dir, "--follow"},
		"adapter a:": {"--adapter", "a=" + dir, "--port", "0"},
	} {
		notes, w := io.Pipe()
		go io.Copy(io.Discard, notes)
		if err := call(context.Background(), w, append([]string{"--load", filepath.Join(dir, "base")}, args...)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want %s", args, err, says)
		}
	}
}
