// Package dashboard is a run, or several side by side, as one page: written to a file
// with its data inlined, or served while a run continues (pretrain_gpt --dashboard-addr and
// monotron watch are the same server). What a run says is read from its --log-jsonl file
// and from the files next to it.
//
// Reading order: tail.go (lines of a log), history.go (steps, without those trained
// again), fields.go with table.go (what the page has of a step), run.go (a run's folder), about.go (what the
// run is), lanes.go (a trace next to it), compare.go (what differs, a run in a line), page.go with
// page/ (HTML), server.go; charts.go (curves without a browser) with picture.go (PNG) and
// screen.go (text).
package dashboard
