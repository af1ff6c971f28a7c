package process

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"time"

	engine "monotron/csrc/comm"
)

// glooEnd is either end of a transport of two ranks: 0 sends, 1 receives. Heads, and
// messages that are not longer than `eager`, go over the connection, since Gloo
// asks the other end before it sends; longer ones go through Gloo, in pieces.
type glooEnd struct {
	conn net.Conn
	mesh *engine.Mesh
	slot uint64 // of the next piece
	left int64  // of the message that is read
	long bool
}

const (
	eager     = 16 << 10
	glooPiece = 64 << 20
)

// offerGloo connects the sending end.
func (l *links) offerGloo(conn net.Conn) (sender, error) {
	e, addresses, err := l.glooEnd(conn, 0)
	if err != nil {
		return nil, err
	}
	answer, err := l.propose(conn, &offer{Transport: transportGloo, Addresses: addresses})
	if err == nil {
		err = e.connect(answer.Addresses)
	}
	if err == nil {
		err = e.prove(l.key, addresses, answer.Addresses)
	}
	if err != nil {
		e.mesh.Close()
		return nil, err
	}
	return e, nil
}

// answerGloo connects the receiving end.
func (l *links) answerGloo(conn net.Conn, o *offer) (receiver, error) {
	e, addresses, err := l.glooEnd(conn, 1)
	if err != nil {
		return nil, err
	}
	err = writeOffer(conn, &offer{Transport: transportGloo, Addresses: addresses})
	if err == nil {
		err = e.connect(o.Addresses)
	}
	if err == nil {
		err = e.prove(l.key, o.Addresses, addresses)
	}
	if err != nil {
		e.mesh.Close()
		return nil, err
	}
	return e, nil
}

// glooEnd makes one end, not connected yet.
func (l *links) glooEnd(conn net.Conn, rank int) (*glooEnd, []byte, error) {
	e, err := l.transports.gloo()
	if err != nil {
		return nil, nil, refusal(err.Error())
	}
	mesh, err := e.NewMesh(rank, 2, l.process.limit+offerTime) // the calls' own limits come first
	if err != nil {
		return nil, nil, err
	}
	end := &glooEnd{conn: conn, mesh: mesh}
	addresses, err := mesh.Addresses()
	if err == nil && !l.keep(conn, mesh.Abort) {
		err = net.ErrClosed
	}
	if err != nil {
		mesh.Close()
		return nil, nil, err
	}
	return end, addresses, nil
}

func (e *glooEnd) connect(addresses []byte) error { return e.mesh.Connect(addresses) }

// prove shows the other end, over Gloo's own connection, that this one belongs to
// the run: Gloo takes whoever comes first to its port.
func (e *glooEnd) prove(key, from, to []byte) error {
	sum := func(side string) []byte {
		m := hmac.New(sha256.New, key)
		for _, part := range [][]byte{[]byte(side), {0}, from, to} {
			m.Write(part)
		}
		return m.Sum(nil)
	}
	var theirs [sha256.Size]byte
	sends, receives := sum("gloo sends"), sum("gloo receives")
	var err error
	if e.mesh.Rank() == 0 {
		err = errors.Join(e.mesh.Send(1, 0, sends), e.mesh.Recv(1, 1, theirs[:]))
		sends, receives = receives, sends
	} else {
		err = errors.Join(e.mesh.Recv(0, 0, theirs[:]), e.mesh.Send(0, 1, receives))
	}
	if err == nil && !hmac.Equal(theirs[:], sends) {
		err = errors.New("a process that is not part of this run opened a Gloo connection")
	}
	e.slot = 2
	return err
}

func (e *glooEnd) begin() {}

func (e *glooEnd) send(h *header, data []byte) error {
	if len(data) <= eager {
		return h.write(e.conn, data)
	}
	if err := h.write(e.conn, nil); err != nil {
		return err
	}
	for len(data) > 0 {
		n := min(len(data), glooPiece)
		if err := e.mesh.Send(1, e.slot, data[:n]); err != nil {
			return err
		}
		e.slot++
		data = data[n:]
	}
	return nil
}

func (e *glooEnd) head(bytes []byte) error {
	_, err := io.ReadFull(e.conn, bytes)
	return err
}

func (e *glooEnd) expect(n int64) { e.left, e.long = n, n > eager }

// Read reads up to the end of a piece; it must be asked for complete pieces.
func (e *glooEnd) Read(b []byte) (int, error) {
	if !e.long {
		return e.conn.Read(b)
	}
	n := int(min(e.left, glooPiece))
	if len(b) < n {
		return 0, io.ErrShortBuffer
	}
	if err := e.mesh.Recv(0, e.slot, b[:n]); err != nil {
		return 0, err
	}
	e.slot++
	e.left -= int64(n)
	return n, nil
}

// close of the sending end waits until the other has left: to close a connection
// of Gloo's is to take back what is on its way.
func (e *glooEnd) close() {
	if e.mesh.Rank() == 0 && e.conn.SetReadDeadline(time.Now().Add(offerTime)) == nil {
		_, _ = io.Copy(io.Discard, e.conn) // however it ends
	}
	e.mesh.Close()
}
