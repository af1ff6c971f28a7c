package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"monotron/internal/exitcode"
	"monotron/internal/web"
	"monotron/megatron/telemetry"
)

// How often logs are checked for a viewer, and the files next to them for all; how long a
// viewer may take to receive something; how many there may be.
const (
	glance    = time.Second / 2
	rescan    = 2 * time.Second
	patience  = 10 * time.Second
	mostViews = 100
)

// Server is the page of some runs, at an address.
type Server struct {
	listener net.Listener
	http     *http.Server
	cancel   context.CancelFunc
	done     chan error
}

// Serve shows runs at addr until Close. opened are those of the sources, where they were read
// already; nil: they are read for the first viewer.
func Serve(addr string, sources []Source, opened []*Run) (*Server, error) {
	listener, err := web.Listen(addr)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	v := newViewer(sources)
	v.runs = opened
	if at, ok := listener.Addr().(*net.TCPAddr); ok {
		v.local = at.IP.IsLoopback()
	}
	s := &Server{listener: listener, cancel: cancel, done: make(chan error, 1), http: web.NewServer(v.handler(), 0, time.Minute)}
	s.http.BaseContext = func(net.Listener) context.Context { return ctx }
	go func() { s.done <- s.http.Serve(listener) }()
	return s, nil
}

// Addr is where it listens.
func (s *Server) Addr() string {
	address, _ := web.Reachable(s.listener.Addr())
	return address
}

// Done gives the error that ended it.
func (s *Server) Done() <-chan error { return s.done }

// Close lets all viewers go.
func (s *Server) Close() error {
	s.cancel()
	return exitcode.With(exitcode.IO, s.http.Close())
}

// viewer answers browsers. Each has its own position in the logs and is served by its own
// goroutine, so that a stuck one delays nobody.
type viewer struct {
	sources []Source
	views   chan struct{} // an entry for each that follows
	local   bool          // the address is one of this machine alone

	mu        sync.Mutex
	runs      []*Run // as last read; nil: to be opened
	checked   time.Time
	neighbors neighbors // the logs, then
}

func newViewer(sources []Source) *viewer {
	return &viewer{sources: sources, views: make(chan struct{}, mostViews)}
}

func (v *viewer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", v.page)
	mux.HandleFunc("GET /data", v.data)
	mux.HandleFunc("GET /events", v.events)
	mux.HandleFunc("PUT /notes", v.writeNotes)
	return new(web.Guard).Wrap(mux)
}

func (v *viewer) page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_ = writePage(w, nil) // the browser has gone
}

func (v *viewer) data(w http.ResponseWriter, _ *http.Request) {
	text, err := v.history()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(text) // the browser has gone
}

// history is all that is known of the runs now.
func (v *viewer) history() ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.refresh(); err != nil {
		return nil, err
	}
	data := dataOf(v.runs)
	data.Writable = v.writable()
	return json.Marshal(data)
}

// refresh reads what is new; the caller holds mu.
func (v *viewer) refresh() (err error) {
	if v.runs == nil {
		v.runs, err = OpenAll(v.sources)
		return err
	}
	v.runs, err = Renewed(v.runs)
	return err
}

// neighbors is each run's state and lanes, as the page takes them. Lanes are long and seldom
// change.
type neighbors struct{ state, lanes string }

// news reads the runs, for all viewers together.
func (v *viewer) news() (b neighbors, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if time.Since(v.checked) < rescan {
		return v.neighbors, nil
	}
	if err := v.refresh(); err != nil {
		return b, err
	}
	states, lanes := make([]pageState, len(v.runs)), make([]*Lanes, len(v.runs))
	for i, r := range v.runs {
		states[i], lanes[i] = r.state(), r.traced.lanes
	}
	state, err := json.Marshal(states)
	if err != nil {
		return b, err
	}
	lane, err := json.Marshal(lanes)
	v.neighbors, v.checked = neighbors{string(state), string(lane)}, time.Now()
	return v.neighbors, err
}

// offsets are positions in the logs of all runs.
type offsets []int64

func positions(runs []*Run) (p offsets) {
	for _, r := range runs {
		p = append(p, r.log.position)
	}
	return p
}

// String is what a browser gives back to continue from here.
func (p offsets) String() string {
	var list []string
	for _, n := range p {
		list = append(list, strconv.FormatInt(n, 10))
	}
	return strings.Join(list, ",")
}

func parsePositions(text string, runs int) (p offsets, ok bool) {
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil || n < 0 {
			return nil, false
		}
		p = append(p, n)
	}
	return p, len(p) == runs
}

// news is a line of a log as the page's script takes it.
type news struct {
	Run   int                `json:"run"`
	Split string             `json:"split"`
	Row   []telemetry.Number `json:"row"`
}

// follower sends one browser what is new.
type follower struct {
	*viewer
	w     http.ResponseWriter
	out   *http.ResponseController
	tails []tail
	sent  neighbors
}

// events follows the logs, from where the browser was when it lost the connection.
func (v *viewer) events(w http.ResponseWriter, r *http.Request) {
	select {
	case v.views <- struct{}{}:
		defer func() { <-v.views }()
	default:
		http.Error(w, "too many viewers", http.StatusServiceUnavailable)
		return
	}
	from := r.Header.Get("Last-Event-ID")
	if from == "" {
		from = r.URL.Query().Get("from")
	}
	at, ok := parsePositions(from, len(v.sources))
	if !ok {
		http.Error(w, "from must have a position in each log", http.StatusBadRequest)
		return
	}
	f := &follower{viewer: v, w: w, out: http.NewResponseController(w)}
	if err := f.open(at); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	f.follow(r.Context())
}

func (f *follower) open(at offsets) error {
	for i, source := range f.sources {
		log, err := source.log()
		if err != nil {
			return err
		}
		f.tails = append(f.tails, tail{path: log, position: at[i]})
	}
	return nil
}

// follow ends with the browser, with the server, or when something cannot be read: the
// browser then asks again.
func (f *follower) follow(ctx context.Context) {
	clock := time.NewTicker(glance)
	defer clock.Stop()
	var checked time.Time
	for {
		err := f.rows()
		if err == nil && time.Since(checked) > rescan {
			checked, err = time.Now(), f.others()
		}
		if errors.Is(err, errShorter) {
			err = errors.Join(err, f.send("again", "", nil))
		}
		if err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-clock.C:
		}
	}
}

// rows sends the lines that are new.
func (f *follower) rows() error {
	for i := range f.tails {
		err := f.tails[i].next(func(line []byte, position int64) error {
			e, ok := parse(line)
			if !ok {
				return nil
			}
			text, err := json.Marshal(news{i, e.Validation, row(&e)})
			if err != nil {
				return err
			}
			at := f.offsets()
			at[i] = position
			return f.send("row", at.String(), text)
		})
		if err != nil {
			return err
		}
	}
	return f.flush()
}

func (f *follower) offsets() (at offsets) {
	for _, t := range f.tails {
		at = append(at, t.position)
	}
	return at
}

// others sends the runs' state and lanes where they have changed, else a comment,
// so that a closed browser is noticed.
func (f *follower) others() error {
	now, err := f.news()
	if err != nil {
		return err
	}
	for _, part := range []struct{ event, now, sent string }{{"state", now.state, f.sent.state}, {"lanes", now.lanes, f.sent.lanes}} {
		if part.now != part.sent {
			err = errors.Join(err, f.send(part.event, f.offsets().String(), []byte(part.now)))
		}
	}
	if now == f.sent {
		err = f.out.SetWriteDeadline(time.Now().Add(patience))
		_, written := fmt.Fprint(f.w, ":\n\n")
		err = errors.Join(err, written)
	}
	f.sent = now
	return errors.Join(err, f.flush())
}

// send gives the browser an event; JSON has no newline in it.
func (f *follower) send(event, id string, data []byte) error {
	if err := f.out.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	_, err := fmt.Fprintf(f.w, "%sevent: %s\ndata: %s\n\n", id, event, data)
	return err
}

func (f *follower) flush() error {
	if err := f.out.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	return f.out.Flush()
}
