package main

import (
	"strings"
	"testing"
)

// TestReport: closing lines of packages, a failed test's output, that of a test in which the process ended, reasons of
// skipped tests, draws, counts; nothing else of tests that passed.
func TestReport(t *testing.T) {
	events := `{"Action":"output","Package":"monotron/a","Test":"TestGood","Output":"chatter\n"}
{"Action":"output","Package":"monotron/a","Test":"TestGood","Output":"    a_test.go:3: 7 of 60 cells, SEED 8\n"}
{"Action":"pass","Package":"monotron/a","Test":"TestGood"}
{"Action":"output","Package":"monotron/a","Test":"TestGPU","Output":"    a_test.go:7: no GPU here\n"}
{"Action":"skip","Package":"monotron/a","Test":"TestGPU"}
{"Action":"output","Package":"monotron/a","Output":"ok  \tmonotron/a\t0.1s\n"}
{"Action":"pass","Package":"monotron/a"}
{"Action":"output","Package":"monotron/b","Test":"TestBad","Output":"    b_test.go:9: 1 != 2\n"}
{"Action":"fail","Package":"monotron/b","Test":"TestBad"}
{"Action":"output","Package":"monotron/b","Output":"FAIL\tmonotron/b\t0.1s\n"}
{"Action":"fail","Package":"monotron/b"}
{"Action":"output","Package":"monotron/d","Test":"TestEnds","Output":"panic: of another goroutine\n"}
{"Action":"output","Package":"monotron/d","Output":"FAIL\tmonotron/d\t0.1s\n"}
{"Action":"fail","Package":"monotron/d"}
{"Action":"build-output","ImportPath":"monotron/c","Output":"c.go:1: syntax error\n"}
`
	want := "ok  \tmonotron/a\t0.1s\n    b_test.go:9: 1 != 2\nFAIL\tmonotron/b\t0.1s\nFAIL\tmonotron/d\t0.1s\nTestEnds had not ended:\npanic: of another goroutine\nc.go:1: syntax error\n" +
		"drawn: a TestGood: 7 of 60 cells, SEED 8\nskipped 1: no GPU here (a TestGPU)\nagain alone: go test -count=1 -v -run '^TestBad$' ./b/\n1 passed, 1 failed, 1 skipped\n"
	var out strings.Builder
	r := report{out: &out, output: map[string][]string{}, reasons: map[string][]string{}}
	r.read(strings.NewReader(events))
	r.summary()
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", out.String(), want)
	}
}
