package dataset

import (
	"fmt"
	"math"

	"monotron/internal/exitcode"
)

// arrayBytes is what the three arrays of a plan take, where its sequences are n.
func (p *plan) arrayBytes(n int64, sampleWidth, shuffleWidth int64) (bytes int64, ok bool) {
	documents, ok := safeProduct(4*n, p.epochs)
	rows, ok2 := safeProduct(2*sampleWidth+shuffleWidth, p.samples+1)
	if !ok || !ok2 || documents > math.MaxInt64-rows {
		return 0, false
	}
	return documents + rows, true
}

// safeProduct multiplies numbers that are not negative.
func safeProduct(a, b int64) (int64, bool) {
	if a != 0 && b > math.MaxInt64/a {
		return 0, false
	}
	return a * b, true
}

// fits refuses index arrays of bytes (ok false: more than can be counted) that are not left.
func (c *cache) fits(what string, samples, bytes int64, ok bool) error {
	const shrink = "lower --train-iters (or --train-samples) or --eval-iters, or raise --eval-interval"
	if !ok {
		return exitcode.Errorf(exitcode.Usage, "the index arrays of %s for %d samples are too large to count in 64 bits; %s", what, samples, shrink)
	}
	if c.left == nil {
		return nil
	}
	left, of := c.left()
	if bytes <= left {
		return nil
	}
	return exitcode.Errorf(exitcode.Internal, "the index arrays of %s for %d samples need %s of memory, but only %s are %s; %s", what, samples, inWords(bytes), inWords(left), of, shrink)
}

// inWords is a number of bytes for people.
func inWords(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
