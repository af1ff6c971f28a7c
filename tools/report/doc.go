// Package report is the commands report and watch: a run, or several side by side,
// as one page (package dashboard), Markdown or CSV.
//
// Reading order: command.go (report), text.go (Markdown, CSV), watch.go.
package report
