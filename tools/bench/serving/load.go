package serving

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"time"
)

// words are what prompts are made of: common ones, which tokenizers know.
var words = strings.Fields(`the of and to in a is that for it as was with be by on not he his but at are this have from or had an
	they which one you were her all their there been if more when will would who so no said what up its about into than them can only other new
	some could time these two may then do first any my now such like our over man me even most made after also did many before must through back years where much your way well`)

// prompt is the text of request i: the same words for the same seed.
func (k *client) prompt(i int) string {
	var list []string
	draw := func(r *rand.Rand, n int) {
		for range n {
			list = append(list, words[r.IntN(len(words))])
		}
	}
	draw(rand.New(rand.NewPCG(k.seed, 0)), k.shared)
	draw(rand.New(rand.NewPCG(k.seed, uint64(i)+1)), k.words-k.shared)
	return strings.Join(list, " ")
}

// arrivals are when n requests go out, from the start on: a Poisson process, whose gaps are
// exponential and know nothing of each other.
func arrivals(seed uint64, n int, rate float64) []time.Duration {
	r, at := rand.New(rand.NewPCG(seed, 1<<63)), 0.0
	list := make([]time.Duration, n)
	for i := range list {
		at += r.ExpFloat64() / rate
		list[i] = time.Duration(at * float64(time.Second))
	}
	return list
}

// load sends the requests of a rate, each at its time whether or not others have been
// answered, and waits for all.
func (k *client) load(ctx context.Context, rate float64) (*result, error) {
	at := arrivals(k.seed, k.requests, rate)
	answers := make([]answer, len(at))
	began := time.Now()
	var all sync.WaitGroup
	for i, t := range at {
		select {
		case <-time.After(time.Until(began.Add(t))):
		case <-ctx.Done():
			all.Wait()
			return nil, context.Cause(ctx)
		}
		all.Go(func() { answers[i] = k.ask(ctx, k.prompt(i+1)) })
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return k.summary(rate, answers, at[len(at)-1], time.Since(began)), nil
}
