package preprocess

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/term"
)

// progress prints how far a run is: Megatron's line after every --log-interval
// documents, and bytes, speed and the time left at intervals of its own.
type progress struct {
	*options
	consumed *atomic.Int64 // bytes of the input files
	total    int64         // their size, 0 where it is not known
	start    time.Time
	shown    int64 // documents of the last of Megatron's lines
	bytes    int64 // of unpacked text
	next     time.Time
	every    time.Duration
}

func (o *options) newProgress(consumed *atomic.Int64) *progress {
	p := &progress{options: o, consumed: consumed, start: time.Now(), every: 10 * time.Second}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		p.every = time.Second
	}
	p.next = p.start.Add(p.every)
	p.total = o.inputBytes()
	return p
}

// inputBytes is the size of all inputs, 0 where one cannot be known.
func (o *options) inputBytes() (total int64) {
	for file, path := range o.inputs {
		if part := o.part(file); part.To > 0 {
			total += part.To - part.From
			continue
		}
		info, err := os.Stat(path)
		if path == "-" || err != nil || !info.Mode().IsRegular() {
			return 0
		}
		total += info.Size()
	}
	return total
}

// show counts a block, which ends at document docs.
func (p *progress) show(docs, bytes int64) {
	p.bytes += bytes
	seconds := time.Since(p.start).Seconds()
	if docs/p.interval != p.shown/p.interval {
		p.shown = docs
		p.say("Processed %d documents (%v docs/s, %v MB/s).", docs/p.interval*p.interval, float64(docs)/seconds, float64(p.bytes)/1024/1024/seconds)
	}
	if now := time.Now(); now.After(p.next) {
		p.next = now.Add(p.every)
		p.say("%s", p.line(seconds))
	}
}

func (p *progress) line(seconds float64) string {
	done := p.consumed.Load()
	text := fmt.Sprintf("read %s, %.1f MB/s of text", size(done), float64(p.bytes)/1e6/seconds)
	if p.total > 0 && done > 0 {
		left := time.Duration(float64(p.total-done) / float64(done) * seconds * float64(time.Second))
		text = fmt.Sprintf("read %s of %s (%.1f%%), %.1f MB/s of text, about %s left", size(done), size(p.total), 100*float64(done)/float64(p.total), float64(p.bytes)/1e6/seconds, left.Round(time.Second))
	}
	return text
}

// end says what all of it took.
func (p *progress) end() {
	seconds := time.Since(p.start).Seconds()
	p.say("%s of text in %.2f s, %.1f MB/s", size(p.bytes), seconds, float64(p.bytes)/1e6/seconds)
}

// size prints a number of bytes.
func size(n int64) string {
	for _, u := range []struct {
		of   float64
		name string
	}{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if float64(n) >= u.of {
			return fmt.Sprintf("%.1f %s", float64(n)/u.of, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
