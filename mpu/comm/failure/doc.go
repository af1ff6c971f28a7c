// Package failure is what a run knows of its end, in fields: one Verdict, made where a
// failure is seen, passed on between ranks, to the launcher and into the run's folder,
// and printed at last. Text is in it for people alone: no code reads it to find out
// what has happened (a build with the tag reworded scrambles every text, and the tests
// of the fault table hold for it, too).
//
// An error that knows more than its text is a Fact: it fills in what it knows. Any
// other is a rank's own failure.
//
// Reading order: verdict.go (kinds and fields), remote.go, say.go (the last
// words of a program), file.go (the verdict in a run's folder).
package failure
