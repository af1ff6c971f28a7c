package rendezvous

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"net"
	"time"
)

// greeting opens every connection, before a caller's nonce.
const greeting = "monotron-ranks/1"

// ErrSecret: the peer does not have this run's secret.
var ErrSecret = errors.New("the peer does not have the secret of this run")

// proofTime is how long a connection may take to prove that it is one of ours.
const proofTime = 30 * time.Second

const nonceSize = 32

// The three steps of a connection, who calls and who answers: greeting and nonce;
// nonce and proof; proof. Each proof covers both nonces and its side's name, so
// that neither can be used again or turned around.

// Call proves to the other end of c that this end knows key, and the reverse.
func Call(c net.Conn, key []byte) error {
	if err := c.SetDeadline(time.Now().Add(proofTime)); err != nil {
		return err
	}
	mine := nonce()
	if _, err := c.Write(append([]byte(greeting), mine...)); err != nil {
		return Dropped(err)
	}
	var answer [nonceSize + sha256.Size]byte
	if _, err := io.ReadFull(c, answer[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return ErrSecret // an answer, but not ours
		}
		return Dropped(err)
	}
	theirs := answer[:nonceSize]
	if !hmac.Equal(answer[nonceSize:], proof(key, "answers", mine, theirs)) {
		return ErrSecret
	}
	if _, err := c.Write(proof(key, "calls", mine, theirs)); err != nil {
		return Dropped(err)
	}
	return c.SetDeadline(time.Time{})
}

// Answer is the other end of Call. A caller that does not know the key learns
// nothing but that something listens.
func Answer(c net.Conn, key []byte) error {
	if err := c.SetDeadline(time.Now().Add(proofTime)); err != nil {
		return err
	}
	var hello [len(greeting) + nonceSize]byte
	if _, err := io.ReadFull(c, hello[:]); err != nil {
		return err
	}
	if string(hello[:len(greeting)]) != greeting {
		return ErrSecret
	}
	theirs, mine := hello[len(greeting):], nonce()
	if _, err := c.Write(append(append([]byte{}, mine...), proof(key, "answers", theirs, mine)...)); err != nil {
		return err
	}
	var last [sha256.Size]byte
	if _, err := io.ReadFull(c, last[:]); err != nil {
		if isClosed(err) {
			return ErrSecret // it does not take this end for one of its run
		}
		return err
	}
	if !hmac.Equal(last[:], proof(key, "calls", theirs, mine)) {
		return ErrSecret
	}
	return c.SetDeadline(time.Time{})
}

// Dropped is err, or ErrDropped where err is that the other end has closed the connection.
func Dropped(err error) error {
	if isClosed(err) {
		return ErrDropped
	}
	return err
}

func nonce() []byte {
	b := make([]byte, nonceSize)
	rand.Read(b) // never fails: it ends the program instead
	return b
}

func proof(key []byte, side string, caller, answerer []byte) []byte {
	m := hmac.New(sha256.New, key)
	for _, part := range [][]byte{[]byte(side), {0}, caller, answerer} {
		m.Write(part)
	}
	return m.Sum(nil)
}
