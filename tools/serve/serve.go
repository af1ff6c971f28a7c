package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/cgroup"
	"monotron/internal/exitcode"
	"monotron/internal/web"
	"monotron/megatron/checkpoint"
	"monotron/megatron/inference"
	"monotron/tools/internal/answering"
	"monotron/tools/internal/command"
)

// Command is serve; open makes a device by its --device name.
func Command(open func(name string) (*device.Device, error)) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "serve",
		Usage: "answer OpenAI's HTTP API with a trained model",
		Description: "Answers POST /v1/completions and /v1/chat/completions, and GET /v1/models, /health and /metrics; a chat page is at /.\n" +
			"Requests run in parallel; the answer to one does not depend on the others. On SIGTERM the server completes the requests in progress, within --drain-timeout, and exits.",
		Flags:  allFlags(),
		Action: command.Model(open, readOptions, run),
	})
}

func allFlags() []cli.Flag {
	return command.ModelFlags(
		&cli.BoolFlag{Name: "follow", Usage: "switch to each new iteration that a run saves to the folder of --load; if there is no iteration yet, wait for the first"},
		&cli.StringFlag{Name: "host", Value: "127.0.0.1", Usage: "listen on this address; 0.0.0.0 listens on all addresses of this host"},
		command.Between(0, 65535, &cli.IntFlag{Name: "port", Value: 8000, Usage: "listen on this port (0 chooses a free port)"}),
		&cli.StringSliceFlag{Name: "adapter", Usage: "also serve the adapter in the PEFT folder DIR as a separate model named NAME, as in `NAME=DIR`; may be repeated"},
		&cli.StringFlag{Name: "served-model-name", Usage: "set the model name that requests use (default: the folder's name)"},
		&cli.StringFlag{Name: "chat-template", Usage: "read the chat template, in Jinja, from this file (default: the tokenizer's template)"},
		&cli.StringFlag{Name: "api-key-file", Usage: "read API keys from this file, one per line (default: no authentication)"},
		&cli.StringFlag{Name: "access-log", Usage: "append one JSON object per request to `FILE`, with time, address, path, status, bytes and seconds; - writes to stderr (default: no log)"},
		&cli.StringSliceFlag{Name: "cors-origin", Usage: "allow requests from the pages of the site `ORIGIN`, such as https://example.org; * allows all sites; may be repeated (default: only the server's own pages)"},
		&cli.StringSliceFlag{Name: "allowed-host", Usage: "on a loopback address, also accept requests whose Host header is `NAME`, such as the name of a proxy; may be repeated"},
		command.Between(1, 4096, &cli.IntFlag{Name: "max-num-seqs", Value: 32, Usage: "generate at most N sequences at the same time"}),
		command.Between(1, 1<<20, &cli.IntFlag{Name: "max-num-batched-tokens", Value: 256, Usage: "compute at most N tokens per forward pass; N must be at least --max-num-seqs; longer prompts are split"}),
		command.Between(0, 1<<30, &cli.IntFlag{Name: "kv-cache-memory", Usage: "use N MiB for the KV cache on each rank (default: enough for --max-num-seqs sequences of full length, but at most 1024 MiB and at most the free memory)"}),
		command.Between(1, 1<<20, &cli.IntFlag{Name: "max-queue", Value: 1024, Usage: "let at most N sequences wait; further requests get status 429"}),
		command.Between(1, 1024, &cli.IntFlag{Name: "max-body", Value: 4, Usage: "accept requests of at most N MiB"}),
		command.Between(1, 86400, &cli.IntFlag{Name: "request-timeout", Value: 600, Usage: "end a request after N seconds"}),
		command.Between(0, 86400, &cli.IntFlag{Name: "drain-timeout", Value: 30, Usage: "give requests N seconds to finish after SIGTERM"}),
	)
}

// mostConnections are open at once, where the limit on open files allows so many.
const mostConnections = 8192

// options are the flags, checked.
type options struct {
	dir      string
	name     string
	load     inference.LoadOptions
	follow   bool // each new iteration
	layout   inference.Layout
	address  string
	template string
	keys     []string
	origins  []string // of pages that may ask
	hosts    []string // names of the server in addition to its own
	sequence int
	rows     int
	cache    int64 // bytes; 0: by the sequences
	queue    int
	body     int64
	timeout  time.Duration
	drain    time.Duration
	log      string     // --access-log
	access   *accessLog // nil: none
}

func readOptions(c *cli.Context) (o options, err error) {
	var all []error
	if o.dir = c.String("load"); o.dir == "" {
		all = append(all, exitcode.Errorf(exitcode.Usage, "--load is missing; give the folder of the model"))
	}
	for _, name := range []string{"host", "api-key-file"} {
		if c.IsSet(name) && c.String(name) == "" { // a variable of a script that is not set: it must not open the server to everybody
			all = append(all, exitcode.Errorf(exitcode.Usage, "--%s is empty; give a value, or leave the flag out", name))
		}
	}
	// Memory and limits.
	o.sequence, o.rows = c.Int("max-num-seqs"), c.Int("max-num-batched-tokens")
	if o.rows < o.sequence {
		all = append(all, exitcode.Errorf(exitcode.Usage, "--max-num-batched-tokens must be at least --max-num-seqs %d, not %d", o.sequence, o.rows))
	}
	o.cache, o.queue = int64(c.Int("kv-cache-memory"))<<20, c.Int("max-queue")
	o.body = int64(c.Int("max-body")) << 20
	o.timeout, o.drain = time.Duration(c.Int("request-timeout"))*time.Second, time.Duration(c.Int("drain-timeout"))*time.Second
	o.address = net.JoinHostPort(c.String("host"), fmt.Sprint(c.Int("port")))
	o.load.Step, o.follow = c.Int64("ckpt-step"), c.Bool("follow")
	if o.follow && c.IsSet("ckpt-step") {
		all = append(all, exitcode.Errorf(exitcode.Usage, "--follow cannot be combined with --ckpt-step %d; give one", o.load.Step))
	}
	// How the model is loaded, and who may ask.
	take := func(err error) {
		if err != nil {
			all = append(all, err)
		}
	}
	o.load.Precision, err = command.Precision(c)
	take(err)
	o.layout.TP, o.layout.PP, o.layout.EP = command.Layout(c)
	o.log = c.String("access-log")
	o.origins, o.hosts = c.StringSlice("cors-origin"), c.StringSlice("allowed-host")
	if err := (&web.Guard{Origins: o.origins, Hosts: o.hosts}).Check(); err != nil {
		take(exitcode.Errorf(exitcode.Usage, "--cors-origin, --allowed-host: %w", err))
	}
	if path := c.String("api-key-file"); path != "" {
		o.keys, err = readKeys(path)
		take(err)
	}
	if path := c.String("chat-template"); path != "" {
		o.template, err = answering.ReadTemplate(path)
		take(err)
	}
	if o.name = c.String("served-model-name"); o.name == "" && o.dir != "" {
		absolute, err := filepath.Abs(o.dir)
		take(exitcode.With(exitcode.IO, err))
		o.name = filepath.Base(absolute)
	}
	o.load.Adapters, err = readAdapters(c.StringSlice("adapter"), o.name)
	take(err)
	if len(o.load.Adapters) > 0 && o.follow {
		take(exitcode.Errorf(exitcode.Usage, "--follow cannot be combined with --adapter, because an adapter belongs to the weights of one iteration; give only one of the two"))
	}
	if len(all) > 0 {
		return o, exitcode.With(exitcode.CodeOf(all[0]), errors.Join(all...))
	}
	return o, nil
}

// openAccessLog opens a file for appending; - is standard error.
func openAccessLog(path string) (*os.File, error) {
	if path == "-" {
		return os.Stderr, nil
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return nil, exitcode.Errorf(exitcode.IO, "--access-log: %w", err)
	}
	return file, nil
}

// readAdapters takes NAME=DIR of each --adapter; base is the name of the model without one.
func readAdapters(words []string, base string) (list []inference.Adapter, err error) {
	seen := map[string]bool{base: true}
	for _, word := range words {
		name, dir, found := strings.Cut(word, "=")
		switch {
		case !found || name == "" || dir == "":
			return nil, exitcode.Errorf(exitcode.Usage, "--adapter %s is not of the form NAME=DIR; NAME is the model name that requests use, DIR the adapter's folder", word)
		case seen[name]:
			return nil, exitcode.Errorf(exitcode.Usage, "--adapter %s: the model or another adapter already has the name %s; choose another name", word, name)
		}
		seen[name] = true
		list = append(list, inference.Adapter{Name: name, Dir: dir})
	}
	return list, nil
}

// run checks for a checkpoint, listens, loads the model meanwhile, and serves until a signal or the end of a rank. Where a
// launcher has started several processes the first one listens, and the others follow it.
func run(c *cli.Context, open func() (*device.Device, error), o options) error {
	if !o.follow { // which waits for a first iteration
		if _, err := checkpoint.DetectAt(o.dir, o.load.Step); err != nil {
			return fmt.Errorf("--load: %w", err)
		}
	}
	at, err := seatOf(&o, open, c.IsSet("cpu-threads"))
	if err != nil {
		return err
	}
	signals, stop := signal.NotifyContext(c.Context, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if !at.listens() {
		return at.follow(signals, o)
	}
	notes := &command.Printer{W: c.App.ErrWriter}
	if o.log != "" {
		file, err := openAccessLog(o.log)
		if err != nil {
			return err
		}
		defer file.Close()
		o.access = &accessLog{to: file, warn: notes.Printf}
	}
	s := newServer(o)
	listener, err := web.ListenUpTo(o.address, cgroup.Files(2, mostConnections))
	if err != nil {
		return exitcode.Errorf(exitcode.IO, "--host, --port: %w", err)
	}
	served := make(chan error, 1)
	go func() { served <- s.http.Serve(listener) }()
	address, everywhere := web.Reachable(listener.Addr())
	also := ""
	if everywhere {
		also = " and at all other addresses of this host,"
	}
	notes.Printf("listening at http://%s/,%s loading %s\n", address, also, o.dir)
	work, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	go func() { // the end: new requests are refused, running ones may end for a while
		<-signals.Done()
		stop() // a second signal ends at once
		s.drain()
		time.AfterFunc(o.drain, func() { cancel(inference.ErrDraining) })
	}()
	err = s.loadAndServe(signals, work, c, at, notes)
	over, done := context.WithTimeout(context.Background(), 5*time.Second) // answers on their way out
	defer done()
	s.http.Shutdown(over)
	s.http.Close()
	if failed := <-served; err == nil && !errors.Is(failed, errClosed) {
		return exitcode.With(exitcode.IO, failed)
	}
	if errors.Is(err, inference.ErrDraining) || err == nil && s.batcher() == nil {
		notes.Printf("exited with unanswered requests\n")
		return nil
	}
	return err
}

// loadAndServe waits for what is not there yet, an iteration or other processes, and serves.
func (s *server) loadAndServe(signals, work context.Context, c *cli.Context, at *seat, notes *command.Printer) error {
	seen, err := s.first(signals, func() { notes.Printf("waiting for a first iteration in %s\n", s.dir) })
	if err != nil || signals.Err() != nil {
		return err
	}
	config, err := at.meet(signals, s.options)
	if err != nil {
		return err
	}
	return s.serve(work, c, config, at.here(s.layout), seen, notes)
}
