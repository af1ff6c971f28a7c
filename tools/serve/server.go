package serve

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/dataset/jsonl"
	"monotron/internal/exitcode"
	"monotron/internal/web"
	"monotron/megatron/inference"
	"monotron/megatron/inference/schema"
	"monotron/megatron/spec"
	"monotron/mpu/ranks"
	"monotron/tokenizer/chat"
	"monotron/tools/internal/answering"
	"monotron/tools/internal/command"
)

var errClosed = http.ErrServerClosed

const (
	patience = 20 * time.Second // for a reader of an answer to take its next part
	bodyTime = time.Minute      // for a client to send a request
)

// server is the model behind its addresses.
type server struct {
	options
	http     *http.Server
	keys     [][sha256.Size]byte
	created  int64
	metrics  *metrics
	intake   *intake
	ready    atomic.Pointer[loaded] // nil while the model is being loaded
	draining atomic.Bool
}

// loaded is what requests need of the model.
type loaded struct {
	*answering.Model
	batcher *inference.Batcher
	words   func() *schema.Vocabulary        // of the tokenizer, made when a request first needs it
	calls   func() (*chat.CallFormat, error) // of the chat template, found when a request first needs it
	shape   spec.Model
	weights string // which these are, as the server began
}

func newServer(o options) *server {
	s := &server{options: o, created: time.Now().Unix(), metrics: newMetrics(o.name), intake: newIntake(o.body)}
	for _, k := range o.keys {
		s.keys = append(s.keys, sha256.Sum256([]byte(k)))
	}
	guard := web.Guard{Origins: o.origins, Hosts: o.hosts, Refuse: func(w http.ResponseWriter, status int, message string) {
		refuse(w, &problem{Status: status, Message: message})
	}}
	s.http = web.NewServer(o.access.wrap(guard.Wrap(s.handler())), min(bodyTime, o.timeout), 0)
	return s
}

func (s *server) batcher() *inference.Batcher {
	if l := s.ready.Load(); l != nil {
		return l.batcher
	}
	return nil
}

// open reports whether others than this host's programs reach the server without a key.
func (s *server) open() bool {
	host, _, err := net.SplitHostPort(s.options.address)
	if err != nil || len(s.options.keys) > 0 || host == "localhost" {
		return false
	}
	ip := net.ParseIP(host)
	return ip == nil || !ip.IsLoopback()
}

// serve loads the model on all ranks and runs it until it is drained or a rank fails.
func (s *server) serve(ctx context.Context, c *cli.Context, at ranks.Config, here int, seen iteration, notes *command.Printer) error {
	// Memory for keys and values: what the device has left, shared with the ranks here.
	size := func(m *inference.Loaded, blockBytes int64) (inference.BatcherConfig, error) {
		capacity, sharers := answering.CapacityOf(m.Device, here)
		return answering.Batching(inference.BatcherConfig{Sequences: s.sequence, Tokens: s.rows, Queue: s.queue}, s.cache, m.MaxContext, blockBytes, capacity, sharers)
	}
	return inference.Serve(ctx, s.layout, at, s.dir, s.load, size, func(m *inference.Loaded, b *inference.Batcher) error {
		for _, n := range m.Notes {
			notes.Printf("%s\n", n)
		}
		if s.open() {
			notes.Printf("everyone who reaches %s can use this server; use --api-key-file to require keys\n", s.options.address)
		}
		// The model and what its requests need, made when first needed: the vocabulary's words for schemas,
		// the form of calls.
		model, err := answering.Of(c, m, s.template)
		if err != nil {
			return err
		}
		l := &loaded{Model: model, batcher: b, shape: m.Model, weights: m.Weights}
		l.words = sync.OnceValue(func() *schema.Vocabulary {
			return schema.NewVocabulary(l.Tok, l.Vocab, append(slices.Clone(l.Ends), int32(l.Tok.EOD())))
		})
		l.calls = sync.OnceValues(func() (*chat.CallFormat, error) { return l.Template.CallFormat() })
		b.Stepped = s.metrics.stepped
		s.metrics.watch(b)
		// From here on requests are answered.
		s.ready.Store(l)
		if s.draining.Load() {
			b.Drain()
		}
		notes.Printf("ready: %s, %d blocks of %d positions\n", s.name, b.Stats().Blocks, device.PagedBlock)
		if s.options.follow {
			go s.follow(ctx, b, seen, notes)
		}
		return notes.Err
	})
}

func (s *server) drain() {
	s.draining.Store(true)
	if b := s.batcher(); b != nil {
		b.Drain()
	}
}

// handler is every address, behind the key.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	for address, h := range map[string]func(http.ResponseWriter, *http.Request, *loaded) error{
		"GET /v1/models": s.models, "GET /v1/models/{model...}": s.model,
		"POST /v1/completions": s.completions, "POST /v1/chat/completions": s.chat,
		"GET /props": s.props, "POST /tokenize": s.tokenize, "POST /detokenize": s.detokenize,
		"PUT /api": s.megatron, "POST /api": s.megatron,
	} {
		mux.HandleFunc(address, s.when(h))
	}
	mux.HandleFunc("GET /health", s.health)
	mux.HandleFunc("GET /v1/health", s.health)
	mux.Handle("GET /metrics", s.metrics.handler())
	mux.HandleFunc("GET /{$}", page)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if open := r.URL.Path == "/health" || r.URL.Path == "/"; !open && !s.allowed(r) {
			refuse(w, &problem{Status: http.StatusUnauthorized, Message: "the API key is missing or wrong: send the header Authorization: Bearer KEY", Type: "invalid_request_error", Code: "invalid_api_key"})
			return
		}
		if _, pattern := mux.Handler(r); pattern == "" {
			s.nowhere(mux, w, r)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// nowhere answers for addresses that are not there, and for others' methods.
func (s *server) nowhere(mux *http.ServeMux, w http.ResponseWriter, r *http.Request) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := mux.Handler(other); pattern != "" && method != r.Method {
			w.Header().Set("Allow", method)
			refuse(w, &problem{Status: http.StatusMethodNotAllowed, Message: fmt.Sprintf("%s takes %s, not %s", r.URL.Path, method, r.Method)})
			return
		}
	}
	refuse(w, &problem{Status: http.StatusNotFound, Message: fmt.Sprintf("the path %.100q does not exist on this server", r.URL.Path), Code: "not_found"})
}

func (s *server) allowed(r *http.Request) bool {
	if len(s.keys) == 0 {
		return true
	}
	key, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	given, found := sha256.Sum256([]byte(key)), 0
	for _, k := range s.keys {
		found |= subtle.ConstantTimeCompare(given[:], k[:])
	}
	return found == 1
}

// when is a handler that needs the model.
func (s *server) when(h func(http.ResponseWriter, *http.Request, *loaded) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		l := s.ready.Load()
		if l == nil {
			refuse(w, unready)
			return
		}
		ctx, done := context.WithTimeout(r.Context(), s.timeout)
		defer done()
		r = r.WithContext(ctx)
		if p := readable(r); p != nil {
			refuse(w, p)
			return
		}
		body, err := s.intake.read(w, r)
		if err != nil {
			refuse(w, problemOf(err))
			return
		}
		defer body.Close()
		r.Body = body
		if err := h(w, r, l); err != nil {
			refuse(w, problemOf(err))
		}
	}
}

// readable refuses a body that says it is something else than JSON. One that says nothing, and
// one of a form, which is what curl -d says without being asked, are taken.
func readable(r *http.Request) *problem {
	kind := r.Header.Get("Content-Type")
	if kind == "" || r.Method == http.MethodGet {
		return nil
	}
	name, _, err := mime.ParseMediaType(kind)
	if err == nil && (name == "application/json" || name == "application/x-www-form-urlencoded" || strings.HasSuffix(name, "+json")) {
		return nil
	}
	return &problem{Status: http.StatusUnsupportedMediaType, Message: fmt.Sprintf("Content-Type %.100q: this server reads JSON; send application/json", kind)}
}

var unready = &problem{Status: http.StatusServiceUnavailable, Message: "the model is being loaded", Type: "unavailable_error"}

func (s *server) health(w http.ResponseWriter, _ *http.Request) {
	switch {
	case s.ready.Load() == nil:
		refuse(w, unready)
	case s.draining.Load():
		refuse(w, &problem{Status: http.StatusServiceUnavailable, Message: inference.ErrDraining.Error(), Type: "unavailable_error"})
	default:
		reply(w, map[string]string{"status": "ok"})
	}
}

// problem is an error as OpenAI's clients read it.
type problem struct {
	Status  int
	Message string
	Type    string
	Param   string // the field that is wrong
	Code    string

	RetryAfter time.Duration // 0: nothing is said of it
}

func (p *problem) Error() string { return p.Message }

// wrong says what is wrong with a field of a request.
func wrong(param, format string, args ...any) error {
	return &problem{Status: http.StatusBadRequest, Message: param + ": " + fmt.Sprintf(format, args...), Param: param}
}

// problemOf is the answer to a client about err.
func problemOf(err error) *problem {
	var p *problem
	var large *http.MaxBytesError
	var broken *inference.NotFinite
	switch {
	case errors.As(err, &p):
		return p
	case errors.As(err, &large):
		return &problem{Status: http.StatusRequestEntityTooLarge, Message: fmt.Sprintf("the request is larger than %d bytes", large.Limit)}
	case errors.Is(err, inference.ErrBusy):
		return &problem{Status: http.StatusTooManyRequests, Message: err.Error(), Type: "rate_limit_error"}
	case errors.Is(err, inference.ErrDraining):
		return &problem{Status: http.StatusServiceUnavailable, Message: err.Error(), Type: "unavailable_error"}
	case errors.Is(err, context.DeadlineExceeded):
		return &problem{Status: http.StatusRequestTimeout, Message: "the request took longer than the server allows", Type: "timeout_error"}
	case errors.Is(err, context.Canceled):
		return &problem{Status: 499, Message: "the client has left"} // nobody reads it
	case errors.As(err, &broken): // no request's fault: continue below
	case exitcode.CodeOf(err) == exitcode.Usage || exitcode.CodeOf(err) == exitcode.BadData:
		return &problem{Status: http.StatusBadRequest, Message: err.Error()}
	}
	return &problem{Status: http.StatusInternalServerError, Message: err.Error(), Type: "server_error"}
}

// body is the error as JSON.
func (p *problem) body() map[string]any {
	null := func(s string) any {
		if s == "" {
			return nil
		}
		return s
	}
	kind := p.Type
	if kind == "" {
		kind = "invalid_request_error"
	}
	return map[string]any{"error": map[string]any{"message": p.Message, "type": kind, "param": null(p.Param), "code": null(p.Code)}}
}

func refuse(w http.ResponseWriter, p *problem) {
	w.Header().Set("Content-Type", "application/json")
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(p.RetryAfter.Seconds())))
	}
	w.WriteHeader(p.Status)
	encode(w, p.body())
}

func reply(w http.ResponseWriter, v any) error {
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
	w.Header().Set("Content-Type", "application/json")
	encode(w, v)
	return nil
}

// encode writes JSON as it is read best: without escapes for HTML. A reader that has gone
// is not an error of ours.
func encode(w io.Writer, v any) {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.Encode(v)
}

// decode reads a request's object. What it does not know is passed over.
func decode(r *http.Request, v any) error {
	data := r.Body.(*inFlight).data // `when` has read it
	if err := checkText(data); err != nil {
		return err
	}
	var kind *json.UnmarshalTypeError
	var p *problem
	switch err := json.Unmarshal(data, v); {
	case err == nil:
		return nil
	case errors.As(err, &p):
		return p
	case errors.As(err, &kind) && kind.Field != "":
		return wrong(strings.TrimPrefix(kind.Field, "ask."), "the value is of type %s, but must be of type %s", kind.Value, kind.Type)
	default:
		return &problem{Status: http.StatusBadRequest, Message: "the body of the request must be a JSON object: " + err.Error()}
	}
}

// checkText refuses strings that are not text: encoding/json would replace them by U+FFFD, and
// the answer would be of another text.
func checkText(data []byte) error {
	var bad *jsonl.NotText
	if !errors.As(jsonl.CheckText(data), &bad) {
		return nil
	}
	if bad.Key == "" {
		return &problem{Status: http.StatusBadRequest, Message: "the request's body is not valid text: " + bad.Error()}
	}
	return wrong(strings.ToValidUTF8(bad.Key, "?"), "the value is not valid text: %s", bad)
}

// readKeys reads one key a line; empty lines and those that begin with # are none.
func readKeys(path string) (keys []string, err error) {
	data, err := exitcode.ReadFile(path, 1<<20)
	if err != nil {
		return nil, fmt.Errorf("--api-key-file: %w", err)
	}
	for line := range strings.Lines(string(data)) {
		if key := strings.TrimSpace(line); key != "" && key[0] != '#' {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, exitcode.Errorf(exitcode.BadData, "--api-key-file %s has no key; write one key per line", path)
	}
	return keys, nil
}
