package dashboard

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"monotron/megatron/telemetry"
)

// processor is the time that this process has had of all processors.
func processor(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkSinksAndViewers is what a step of a run costs in addition to its training: an operation
// is a step, which --log-jsonl's sink writes and the page's server sends its viewers. Ten
// steps a second, as those of small models, and one every two seconds; run it with
// -benchtime 100x or less. Viewers are clients of this process, whose own work counts too.
func BenchmarkSinksAndViewers(b *testing.B) {
	for _, pace := range []time.Duration{100 * time.Millisecond, 2 * time.Second} {
		for _, viewers := range []int{0, 1, 10} {
			b.Run(fmt.Sprintf("a step each %v, %d viewers", pace, viewers), func(b *testing.B) { sinksAndViewers(b, pace, viewers) })
		}
	}
}

func sinksAndViewers(b *testing.B, pace time.Duration, viewers int) {
	path := filepath.Join(b.TempDir(), "steps.jsonl")
	log, err := telemetry.OpenJSONL(path)
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	server, err := Serve("127.0.0.1:0", []Source{{Path: path, Ongoing: true, FlagsOf: noFlags}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer server.Close()
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	for range viewers {
		watching.Go(func() { view(ctx, server.Addr()) })
	}
	time.Sleep(time.Second) // all have read the page once
	norm, clock, began := 1.0, time.NewTicker(pace), processor(b)
	defer clock.Stop()
	for i := range b.N {
		<-clock.C
		s := &telemetry.Step{Time: time.Now(), Iteration: i + 1, TrainIters: b.N, Losses: []telemetry.Value{{Name: "lm loss", Value: 3.14159}}, GradNorm: &norm,
			Elapsed: pace, GlobalBatchSize: 8, Tokens: 2048, Ranks: 2, FLOPs: 1e12, Memory: telemetry.Memory{MaxAllocated: 1 << 30, Planned: 1 << 30},
			Line: &telemetry.Interval{Purposes: []telemetry.Value{{Name: "parameters", Value: 1e9}, {Name: "activations", Value: 1e9}}}}
		if err := log.Take(s); err != nil {
			b.Fatal(err)
		}
	}
	took := (processor(b) - began).Seconds() / float64(b.N)
	b.ReportMetric(1e6*took, "cpu-us/step")
	b.ReportMetric(100*took/pace.Seconds(), "%-of-a-core")
	b.ReportMetric(0, "ns/op")
}

// view follows the page's events until ctx ends.
func view(ctx context.Context, address string) {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/events?from=0", nil)
	if err != nil {
		return
	}
	reply, err := http.DefaultClient.Do(ask)
	if err != nil {
		return
	}
	defer reply.Body.Close()
	_, _ = io.Copy(io.Discard, reply.Body) // until ctx ends
}
