package watch

import (
	"context"
	"net"
	"os"
	"sync"
	"time"

	"monotron/mpu/comm/rendezvous"
)

// Beater sends a rank's beats.
type Beater struct {
	recorder *Recorder
	send     func(*message) error
	quit     chan struct{}
	idle     sync.WaitGroup
	closing  sync.Once
	stop     context.CancelFunc

	mu   sync.Mutex
	conn net.Conn // to the watcher, where that is another process
}

// Straight beats to a watcher of this process.
func Straight(r *Recorder, w *Watcher) *Beater {
	b := &Beater{recorder: r, quit: make(chan struct{}), stop: func() {}}
	b.send = func(m *message) error { w.hear(r.Rank(), m); return nil }
	b.idle.Go(b.beat)
	return b
}

// Dial beats to the watcher at addr, which must prove to know key. A connection that
// breaks is made again; the run does not notice.
func Dial(r *Recorder, addr string, key []byte) *Beater {
	ctx, stop := context.WithCancel(context.Background())
	b := &Beater{recorder: r, quit: make(chan struct{}), stop: stop}
	b.send = b.write
	b.idle.Go(func() { b.connect(ctx, addr, key) })
	b.idle.Go(b.beat)
	return b
}

// connect keeps a connection.
func (b *Beater) connect(ctx context.Context, addr string, key []byte) {
	var dialer net.Dialer
	for ctx.Err() == nil {
		conn, err := dialer.DialContext(ctx, "tcp", addr)
		if err == nil {
			if err = rendezvous.Call(conn, key); err == nil {
				b.serve(ctx, conn)
			}
			conn.Close() // it is over
		}
		select {
		case <-ctx.Done():
		case <-time.After(beatEvery):
		}
	}
}

// serve answers what the watcher asks, until the connection ends.
func (b *Beater) serve(ctx context.Context, conn net.Conn) {
	over := context.AfterFunc(ctx, func() { conn.Close() }) // ends the reading below
	defer over()
	b.use(conn)
	defer b.use(nil)
	if b.greet() != nil || b.Beat() != nil {
		return
	}
	for {
		m, err := readMessage(conn)
		if err != nil {
			return
		}
		if m.Ask {
			b.Answer()
		}
	}
}

func (b *Beater) use(conn net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.conn = conn
}

// write sends over the connection; without one the message is lost.
func (b *Beater) write(m *message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == nil {
		return net.ErrClosed
	}
	if err := b.conn.SetWriteDeadline(time.Now().Add(writing)); err != nil {
		return err
	}
	err := writeMessage(b.conn, m)
	if err != nil {
		b.conn.Close() // connect makes another
	}
	return err
}

func (b *Beater) greet() error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return b.send(&message{Hello: b.recorder.hello(host)})
}

// Beat sends one beat now.
func (b *Beater) Beat() error { return b.send(&message{Beat: b.recorder.Beat()}) }

// Answer sends a report: the rank's stack and last calls.
func (b *Beater) Answer() { _ = b.send(&message{Report: b.recorder.report(nil)}) }

// beat beats once a second, and names the rank's groups when there are more.
func (b *Beater) beat() {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	named := -1
	for {
		if n := len(b.recorder.Groups()); n != named && b.greet() == nil {
			named = n
		}
		_ = b.Beat() // a broken connection is made again
		select {
		case <-b.quit:
			return
		case <-tick.C:
		}
	}
}

// Close says how the rank ends: nil, it is done.
func (b *Beater) Close(err error) {
	b.closing.Do(func() {
		close(b.quit)
		_ = b.Beat() // it may be too late for all of these
		if err != nil {
			_ = b.send(&message{Report: b.recorder.report(err)})
		}
		_ = b.send(&message{Bye: true})
		b.stop()
	})
	b.idle.Wait()
}
