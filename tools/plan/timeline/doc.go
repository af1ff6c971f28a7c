// Package timeline draws what the stages of a pipeline do when: as text for a terminal
// (text.go), as a picture (svg.go) and for chrome://tracing (trace.go).
package timeline
