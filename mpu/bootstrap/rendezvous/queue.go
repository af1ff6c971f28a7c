package rendezvous

import (
	"net"
	"time"
)

// queue is what is on its way to the other end of a connection. A peer that does not read gets no more when it is full.
type queue struct {
	conn  net.Conn
	out   chan []byte
	ended bool // nothing more is sent; whoever uses the queue holds a lock
}

// newQueue has what is sent written, by a goroutine that calls done at its end.
func newQueue(conn net.Conn, most int, done func()) *queue {
	q := &queue{conn: conn, out: make(chan []byte, most)}
	go func() {
		defer done()
		q.write()
	}()
	return q
}

// send queues a message.
func (q *queue) send(frame []byte) {
	if q.ended {
		return
	}
	select {
	case q.out <- frame:
	default:
	}
}

// end sends what is queued, then no more.
func (q *queue) end() {
	if !q.ended {
		q.ended = true
		close(q.out)
	}
}

func (q *queue) write() {
	for frame := range q.out {
		if q.conn.SetWriteDeadline(time.Now().Add(writeTime)) != nil {
			break
		}
		if _, err := q.conn.Write(frame); err != nil {
			break
		}
	}
	if c, ok := q.conn.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite() // it may be gone
	}
	for range q.out { // nobody is to block on it
	}
}
