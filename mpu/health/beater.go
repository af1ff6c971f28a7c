package health

import (
	"os"
	"sync"
	"time"

	"monotron/mpu/bootstrap/rendezvous"
)

// Beater reports one rank to the watcher.
type Beater struct {
	recorder *Recorder
	send     func(*message) error
	quit     chan struct{}
	idle     sync.WaitGroup
	closing  sync.Once

	mu    sync.Mutex
	named int // groups that the watcher knows of; -1: it does not know the rank
}

// Straight beats to a watcher of this process.
func Straight(r *Recorder, w *Watcher) *Beater {
	b := &Beater{recorder: r, quit: make(chan struct{}), named: -1}
	b.send = func(m *message) error { w.hear(r.Rank(), m); return nil }
	b.idle.Go(b.beat)
	return b
}

// Over has the beats of a rank's session say more: rank 0's watcher hears them.
func Over(r *Recorder, s *rendezvous.Session) *Beater {
	b := &Beater{recorder: r, quit: make(chan struct{}), named: -1}
	b.send = func(m *message) error {
		sent, err := m.write()
		if err != nil {
			return err
		}
		return s.Tell(sent)
	}
	s.Speak(b.say, b.Answer)
	_ = b.send(b.news()) // a broken connection ends the run
	return b
}

// beat beats once a second.
func (b *Beater) beat() {
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		_ = b.send(b.news()) // nothing can fail within a process
		select {
		case <-b.quit:
			return
		case <-tick.C:
		}
	}
}

// say is a beat of the session, and what the rank is at in words.
func (b *Beater) say() (at string, sent []byte) {
	at = At(b.recorder.Now())
	select {
	case <-b.quit: // it has said how it ends
		return at, nil
	default:
	}
	sent, err := b.news().write()
	if err != nil {
		return at, nil
	}
	return at, sent
}

// news is a beat, with the rank's groups where there are more than the watcher knows.
func (b *Beater) news() *message {
	m := &message{Beat: b.recorder.Beat()}
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.recorder.Groups()); n != b.named {
		host, err := os.Hostname()
		if err != nil {
			host = "unknown"
		}
		m.Hello, b.named = b.recorder.hello(host), n
	}
	return m
}

// Answer sends a report: the rank's stack and last calls.
func (b *Beater) Answer() { _ = b.send(&message{Report: b.recorder.report(nil)}) }

// Close says how the rank ends: nil, it is done.
func (b *Beater) Close(err error) {
	b.closing.Do(func() {
		close(b.quit)
		m := &message{Beat: b.recorder.Beat(), Bye: true}
		if err != nil {
			m.Report = b.recorder.report(err)
		}
		_ = b.send(m) // it may be too late
	})
	b.idle.Wait()
}
