// quickstart shows the whole of monotron in under four minutes, with nothing
// downloaded: the Go toolchain's own sources become tokens, a small GPT learns
// from them, is killed with kill -9 and resumed, and writes Go of its own.
//
//	make quickstart
//
// Every command it runs is printed so that it can be typed again. main.go tells
// the story, corpus.go writes the text, training.go runs and kills, proof.go
// compares what was repeated, writing.go samples; command.go prints
// and runs commands, progress.go follows a run.
package main
