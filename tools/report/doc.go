// Package report is the commands report and watch: a run, or several beside each other,
// as one page. report writes it with its data inlined, watch serves it while the run
// goes on. What a run says is read from its --log-jsonl file and from what lies beside it.
//
// Reading order: command.go, tail.go (lines of a log), history.go (steps, without those trained
// again), run.go (a run's folder), compare.go, text.go (Markdown, CSV), page.go with
// page/ (HTML), watch.go (the server).
package report
