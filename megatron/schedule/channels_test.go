package schedule

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// token is a value that knows where it was made; the zero token is none.
type token struct {
	made     bool
	grad     bool
	boundary int // virtual stage it comes after
	micro    int
}

// stageOnChannels is a stage of a pipeline whose links are unbuffered channels.
type stageOnChannels struct {
	ctx           context.Context
	stage, stages int
	chunks        int
	wires         map[[2]int]chan token
	turn          map[chan token]chan struct{} // closed when the last exchange on a wire is over
}

func (s *stageOnChannels) Forward(micro, chunk int, in token) (token, error) {
	v := chunk*s.stages + s.stage
	if want := (token{v > 0, false, v - 1, micro}); v > 0 && in != want || v == 0 && in.made {
		return token{}, fmt.Errorf("virtual stage %d was given %+v", v, in)
	}
	return token{true, false, v, micro}, nil
}

func (s *stageOnChannels) Backward(micro, chunk int, dout token) (token, error) {
	v, last := chunk*s.stages+s.stage, s.stages*s.chunks-1
	if want := (token{true, true, v, micro}); v < last && dout != want || v == last && dout.made {
		return token{}, fmt.Errorf("virtual stage %d was given the gradient %+v", v, dout)
	}
	return token{true, true, v - 1, micro}, nil
}

// Exchange begins every transfer at once; those on one wire go in order.
func (s *stageOnChannels) Exchange(transfers []Transfer, values []token) (func() ([]token, error), error) {
	received := make([]token, len(transfers))
	over := make(chan struct{}, len(transfers))
	for i, t := range transfers {
		wire := s.wires[[2]int{t.Peer, s.stage}]
		if t.Send {
			wire = s.wires[[2]int{s.stage, t.Peer}]
		}
		before, done := s.turn[wire], make(chan struct{})
		s.turn[wire] = done
		go func() {
			defer close(done)
			defer func() { over <- struct{}{} }()
			if before != nil {
				<-before
			}
			if t.Send {
				select {
				case wire <- values[i]:
				case <-s.ctx.Done():
				}
				return
			}
			select {
			case received[i] = <-wire:
			case <-s.ctx.Done():
			}
		}()
	}
	return func() ([]token, error) {
		for range transfers {
			<-over
		}
		return received, s.ctx.Err()
	}, nil
}

var errStuck = errors.New("every stage waits")

// runOnChannels runs lists on goroutines over unbuffered channels. In the test's
// bubble the clock moves only when every goroutine waits: then they wait forever.
func runOnChannels(t *testing.T, lists [][]Action, chunks int) (err error) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(context.Background())
		defer cancel(nil)
		stuck := time.AfterFunc(time.Hour, func() { cancel(errStuck) })
		defer stuck.Stop()
		wires := map[[2]int]chan token{}
		for from := range lists {
			for to := range lists {
				wires[[2]int{from, to}] = make(chan token)
			}
		}
		var running sync.WaitGroup
		for stage, acts := range lists {
			running.Go(func() {
				s := &stageOnChannels{ctx: ctx, stage: stage, stages: len(lists), chunks: chunks, wires: wires, turn: map[chan token]chan struct{}{}}
				if err := Run(acts, s, s); err != nil {
					cancel(fmt.Errorf("stage %d: %w", stage, err)) // only the first cause stays
				}
			})
		}
		running.Wait()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	})
	return err
}

// strict ends every exchange before what follows.
func strict(lists [][]Action) [][]Action {
	out := make([][]Action, len(lists))
	for stage, acts := range lists {
		for _, a := range acts {
			a.Overlap = false
			out[stage] = append(out[stage], a)
		}
	}
	return out
}
