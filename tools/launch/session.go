package launch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"monotron/internal/exitcode"
	"monotron/mpu/bootstrap/rendezvous"
	"monotron/mpu/comm/failure"
)

// hold keeps a session until somebody ends it.
func (g *gathering) hold(s *rendezvous.Session) {
	g.session, g.ended = s, make(chan struct{})
	go func(ended chan struct{}) {
		<-s.Lost()
		_ = s.Close() // why it ended is in Err
		close(ended)
	}(g.ended)
}

// What launchers tell each other at the end of a start, by the verdict's kind: all meet again, or
// the run is over.
const (
	meetAgain = failure.Other
	runIsOver = failure.Own
)

// over ends the session for all, with how the run has ended. Without other hosts there is none.
func (g *gathering) over(err error) {
	if g == nil || g.session == nil {
		return
	}
	v := &failure.Verdict{Kind: runIsOver, Rank: g.number0, Code: exitcode.CodeOf(err), Text: "the run is complete", Time: time.Now()}
	if err != nil {
		v.Text = err.Error()
	}
	_ = g.session.Judge(v) // the first one counts
	g.leave()
}

// leave ends this launcher's part in the last meeting.
func (g *gathering) leave() {
	if g.session == nil {
		return
	}
	select {
	case <-g.session.Lost():
		<-g.ended
	default:
		_ = g.session.Judge(&failure.Verdict{Kind: meetAgain, Rank: g.number0, Code: exitcode.Again, Text: "the hosts meet again", Time: time.Now()})
		<-g.ended
	}
	g.session = nil
}

// standby waits, on a spare host, until the hosts meet again (nil), the run is over or its check fails.
func (g *gathering) standby(ctx context.Context, notes io.Writer) (over bool, err error) {
	select {
	case <-ctx.Done():
		err = exitcode.Errorf(exitcode.Again, "stopped while waiting as a spare host")
	case <-g.check.failed:
		err = g.check.failure()
	case <-g.session.Lost():
	}
	if err != nil {
		_ = g.session.Close() // the others continue
		g.session = nil
		return true, err
	}
	<-g.ended
	err = g.session.Err()
	g.session = nil
	return runEnded(err, notes)
}

// runEnded reports whether a session ended with the run; err is then how.
func runEnded(why error, notes io.Writer) (over bool, err error) {
	var v *failure.Verdict
	if !errors.As(why, &v) || v.Kind != runIsOver {
		return false, nil
	}
	if v.Code == exitcode.Done {
		fmt.Fprintln(notes, "launch: the run has ended, and this spare host was not needed")
		return true, nil
	}
	return true, exitcode.Errorf(v.Code, "the run has ended on the other hosts: %s", v.Text)
}
