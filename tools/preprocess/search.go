package preprocess

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
)

// search is --find-optimal-num-workers: it encodes the first documents with each
// number of workers and ranks them, in Megatron's words. As there, the output
// then holds those documents only.
func (o *options) search(c *cli.Context) error {
	counts := slices.DeleteFunc(slices.Clone(c.IntSlice("workers-to-check")), func(n int) bool {
		if n%o.partitions != 0 {
			o.say("Removing num_workers (%d) from workers list because it's not divisible by num_partitions (%d)", n, o.partitions)
		}
		return n%o.partitions != 0
	})
	if len(counts) == 0 {
		return exitcode.Errorf(exitcode.Usage, "--workers-to-check has no number that is divisible by --partitions %d", o.partitions)
	}
	type result struct {
		workers int
		speed   float64 // documents a second
	}
	// Each number of workers encodes the same documents.
	var results []result
	o.maxDocuments = c.Int64("max-documents")
	for _, n := range counts {
		fmt.Fprintf(c.App.Writer, "Processing data with %d workers.\n", n)
		start := time.Now()
		o.workers = n
		docs, err := o.timed()
		if err != nil {
			return err
		}
		results = append(results, result{n, float64(docs) / time.Since(start).Seconds()})
	}
	// Megatron's table, fastest first.
	slices.SortStableFunc(results, func(a, b result) int { return cmp.Compare(b.speed, a.speed) })
	rule := "\n-----------------------------------"
	fmt.Fprintf(c.App.Writer, "%s\nPerformance results (fastest → slowest):\n", rule)
	for i, r := range results {
		fmt.Fprintf(c.App.Writer, "%d. %d workers → avg. docs/s: %.4f\n", i+1, r.workers, r.speed)
	}
	_, err := fmt.Fprintf(c.App.Writer, "%s\nThe most optimal num of workers is %d with avg. preprocessed docs/s: %.4f.%s\n", rule, results[0].workers, results[0].speed, rule)
	o.say("the output has only the first %d documents of each partition; run without --find-optimal-num-workers for all of them", o.maxDocuments)
	return exitcode.With(exitcode.IO, err)
}

// timed is one run, with the documents it read.
func (o *options) timed() (int64, error) {
	before := o.read
	err := o.jsonl()
	return o.read - before, err
}
