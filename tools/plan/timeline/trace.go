package timeline

import (
	"bytes"
	"fmt"

	"monotron/megatron/schedule"
)

// Trace is the chart for chrome://tracing and Perfetto: a row a stage, a box a forward or
// backward, and behind them in every row what the step ends with (name, seconds).
func (c *Chart) Trace(after []After) []byte {
	var b bytes.Buffer
	b.WriteString(`{"displayTimeUnit":"ms","traceEvents":[`)
	comma := ""
	add := func(format string, a ...any) {
		b.WriteString(comma)
		fmt.Fprintf(&b, format, a...)
		comma = ",\n"
	}
	box := func(name string, stage int, from, to float64) {
		add(`{"ph":"X","name":%q,"pid":0,"tid":%d,"ts":%.3f,"dur":%.3f}`, name, stage, from*1e6, (to-from)*1e6)
	}
	for stage, spans := range c.Line.Spans {
		add(`{"ph":"M","name":"thread_name","pid":0,"tid":%d,"args":{"name":"stage %d"}}`, stage, stage)
		for _, s := range spans {
			box(c.name(s), stage, s.From, s.To)
		}
		at := c.Line.End
		for _, x := range after {
			box(x.Name, stage, at, at+x.Seconds)
			at += x.Seconds
		}
	}
	b.WriteString("]}\n")
	return b.Bytes()
}

// After is what follows the last backward.
type After struct {
	Name    string
	Seconds float64
}

func (c *Chart) name(s schedule.Span) string {
	what := "forward"
	if s.Kind == schedule.Backward {
		what = "backward"
	}
	if c.Line.Config.Chunks > 1 {
		return fmt.Sprintf("%s of micro-batch %d, chunk %d", what, s.Micro, s.Chunk)
	}
	return fmt.Sprintf("%s of micro-batch %d", what, s.Micro)
}
