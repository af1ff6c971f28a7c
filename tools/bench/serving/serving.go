package serving

import (
	"context"
	"errors"
	"math"
	"net/http"
	"net/url"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
)

// Flags are those of bench serve; the model's name is --model.
func Flags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "base-url", Value: "http://127.0.0.1:8000", Usage: "bench serve: send to the server at this address, without /v1"},
		&cli.StringFlag{Name: "api-key-file", Usage: "bench serve: read the API key from the first line of this file"},
		&cli.Float64SliceFlag{Name: "request-rate", Value: cli.NewFloat64Slice(4), Usage: "bench serve: send `X` requests per second, as a Poisson process; may be repeated to test several rates in sequence"},
		command.Between(1, 1<<20, &cli.IntFlag{Name: "num-requests", Value: 100, Usage: "bench serve: send N requests at each rate"}),
		command.Between(1, 1<<20, &cli.IntFlag{Name: "prompt-words", Value: 32, Usage: "bench serve: send prompts of N words"}),
		command.Between(0, 1<<20, &cli.IntFlag{Name: "shared-words", Usage: "bench serve: begin all prompts with the same N words"}),
		command.Between(1, 1<<20, &cli.IntFlag{Name: "max-tokens", Value: 16, Usage: "bench serve: limit an answer to N tokens"}),
		&cli.BoolFlag{Name: "chat", Usage: "bench serve: use /v1/chat/completions"},
		&cli.BoolFlag{Name: "ignore-eos", Usage: "bench serve: send ignore_eos, which is not part of OpenAI's API, so that all answers have equal length"},
		command.Between(0, math.MaxUint64, &cli.Uint64Flag{Name: "seed", Value: 1, Usage: "bench serve: set the seed of arrivals and prompts"}),
		command.Between(1, 1<<30, &cli.IntFlag{Name: "ttft-limit", Value: 1000, Usage: "bench serve: count a request as good if its first token comes within N milliseconds"}),
		command.Between(1, 1<<30, &cli.IntFlag{Name: "tpot-limit", Value: 200, Usage: "bench serve: count a request as good if the tokens after the first take at most N milliseconds each on average"}),
		command.Between(1, 86400, &cli.IntFlag{Name: "request-timeout", Value: 600, Usage: "bench serve: end a request after N seconds"}),
	}
}

// options are the flags, checked.
type options struct {
	base      string
	key       string
	model     string // "": the first that the server names
	rates     []float64
	requests  int
	words     int
	shared    int
	tokens    int
	chat      bool
	ignoreEOS bool
	seed      uint64
	ttft      time.Duration
	tpot      time.Duration
	timeout   time.Duration
}

func readOptions(c *cli.Context) (o options, err error) {
	var all []error
	// take collects problems, so that all are reported at once.
	take := func(ok bool, format string, args ...any) {
		if !ok {
			all = append(all, exitcode.Errorf(exitcode.Usage, format, args...))
		}
	}
	milliseconds := func(name string) time.Duration { return time.Duration(c.Int(name)) * time.Millisecond }
	o = options{base: strings.TrimSuffix(c.String("base-url"), "/"), rates: c.Float64Slice("request-rate"), chat: c.Bool("chat"), ignoreEOS: c.Bool("ignore-eos"), seed: c.Uint64("seed")}
	// The server and the rates of requests to try.
	at, err := url.Parse(o.base)
	take(err == nil && (at.Scheme == "http" || at.Scheme == "https") && at.Host != "", "--base-url %q must have the form http://HOST:PORT", o.base)
	take(len(o.rates) > 0, "--request-rate is missing; give at least one rate")
	for _, r := range o.rates {
		take(r > 0 && !math.IsInf(r, 1), "--request-rate must be above 0, not %g", r)
	}
	if c.IsSet("model") {
		o.model = c.String("model")
	}
	// The requests, and the limits that a good answer keeps.
	o.requests, o.words, o.shared, o.tokens = c.Int("num-requests"), c.Int("prompt-words"), c.Int("shared-words"), c.Int("max-tokens")
	take(o.shared <= o.words, "--shared-words %d must not exceed --prompt-words, which is %d", o.shared, o.words)
	o.ttft, o.tpot, o.timeout = milliseconds("ttft-limit"), milliseconds("tpot-limit"), time.Duration(c.Int("request-timeout"))*time.Second
	// The key is read from a file: command lines can be read by everybody.
	if path := c.String("api-key-file"); path != "" {
		text, err := exitcode.ReadFile(path, 1<<20)
		take(err == nil, "--api-key-file: %v", err)
		first, _, _ := strings.Cut(string(text), "\n")
		o.key = strings.TrimSpace(first)
	}
	if len(all) > 0 {
		return o, exitcode.With(exitcode.Usage, errors.Join(all...))
	}
	return o, nil
}

// Run is bench serve.
func Run(c *cli.Context) error {
	o, err := readOptions(c)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(c.Context, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	k := &client{options: o, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1 << 16}}}
	if err := k.greet(ctx); err != nil {
		return err
	}
	notes := &command.Printer{W: c.App.ErrWriter}
	r := &results{Server: o.base, Model: k.model, Seed: o.seed, Words: o.words, Shared: o.shared, MostTokens: o.tokens, TTFTLimit: o.ttft.Seconds(), TPOTLimit: o.tpot.Seconds()}
	// One load after the other; nothing is left of one when the next begins.
	for _, rate := range o.rates {
		notes.Printf("%d requests, %g a second\n", o.requests, rate)
		one, err := k.load(ctx, rate)
		if err != nil {
			return err
		}
		r.Rates = append(r.Rates, one)
	}
	out := &command.Printer{W: c.App.Writer}
	if c.Bool("json") {
		out.JSON(r)
	} else {
		r.print(out)
	}
	return out.Err
}

// greet finds the model's name and sees that the server answers, before any time counts.
func (k *client) greet(ctx context.Context) error {
	if k.model == "" {
		name, err := k.firstModel(ctx)
		if err != nil {
			return err
		}
		k.model = name
	}
	a := k.ask(ctx, k.prompt(0))
	if a.failed != "" {
		return exitcode.Errorf(exitcode.NoInput, "%s: the first request failed: %s; check --base-url, --model and --api-key-file, and read the server's log", k.base, a.failed)
	}
	return nil
}

func (k *client) firstModel(ctx context.Context) (string, error) {
	var list struct{ Data []struct{ ID string } }
	if err := k.get(ctx, "/v1/models", &list); err != nil {
		return "", exitcode.Errorf(exitcode.NoInput, "%s/v1/models: %w; check that a server runs at this address", k.base, err)
	}
	if len(list.Data) == 0 {
		return "", exitcode.Errorf(exitcode.NoInput, "%s/v1/models does not name a model; give --model", k.base)
	}
	return list.Data[0].ID, nil
}
