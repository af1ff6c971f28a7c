// testreport runs `go test` with the given arguments and prints what a person
// needs: a line a package, the output of failed tests, every skipped test with
// its reason, how much of long tables was drawn, how to run again what failed, and the counts.
//
//	go run ./scripts/testreport -short ./...
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sort"
	"strings"
)

// event is what `go test -json` prints, one a line (go doc test2json).
type event struct {
	Action, Package, Test, Output, ImportPath string
}

type report struct {
	out                     io.Writer
	output                  map[string][]string // by package and test, until it ends
	passed, failed, skipped int
	reasons                 map[string][]string // skipped tests by reason
	again                   []string            // what runs each failed test alone
	drawn                   []string            // how much of a table each test has drawn
}

func main() {
	cmd := exec.Command("go", append([]string{"test", "-json"}, os.Args[1:]...)...)
	cmd.Stderr = os.Stderr
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(1)
	}
	r := report{out: os.Stdout, output: map[string][]string{}, reasons: map[string][]string{}}
	r.read(pipe)
	failed := cmd.Wait() != nil
	r.summary()
	if failed || r.failed > 0 {
		os.Exit(1)
	}
}

func (r *report) read(lines io.Reader) {
	in := bufio.NewScanner(lines)
	in.Buffer(nil, 16<<20)
	for in.Scan() {
		var e event
		if json.Unmarshal(in.Bytes(), &e) != nil {
			fmt.Fprintln(r.out, in.Text())
			continue
		}
		r.see(e)
	}
}

func (r *report) see(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		if e.Test == "" && closing(e.Output) {
			fmt.Fprint(r.out, e.Output)
			return
		}
		r.output[key] = append(r.output[key], e.Output)
	case "pass", "fail", "skip":
		r.end(e, r.output[key])
		delete(r.output, key)
	}
}

// closing recognizes go test's line about a complete package.
func closing(line string) bool {
	return strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "FAIL\t")
}

func (r *report) end(e event, output []string) {
	if e.Action == "fail" {
		fmt.Fprint(r.out, strings.Join(output, ""))
	}
	if e.Test == "" {
		if e.Action == "fail" {
			r.unended(e.Package)
		}
		return
	}
	switch e.Action {
	case "pass":
		r.passed++
		r.draws(e, output)
	case "fail":
		r.failed++
		r.again = append(r.again, fmt.Sprintf("go test -count=1 -v -run '^%s$' ./%s", strings.ReplaceAll(e.Test, "/", "$/^"), strings.TrimPrefix(e.Package+"/", "monotron/")))
	case "skip":
		r.skipped++
		why := reason(output)
		r.reasons[why] = append(r.reasons[why], strings.TrimPrefix(e.Package, "monotron/")+" "+e.Test)
	}
}

// draws keeps the lines by which tests say how much of a table they have drawn: "7 of 60 cells, SEED 8".
func (r *report) draws(e event, output []string) {
	for _, line := range output {
		if _, text, ok := strings.Cut(strings.TrimSpace(line), ".go:"); ok && strings.Contains(text, " of ") && strings.Contains(text, ", SEED ") {
			_, text, _ = strings.Cut(text, ": ")
			r.drawn = append(r.drawn, strings.TrimPrefix(e.Package, "monotron/")+" "+e.Test+": "+text)
		}
	}
}

// unended prints what tests of a package said that had not ended when it failed: one of them
// ended the process.
func (r *report) unended(pkg string) {
	for key, output := range r.output {
		if test, is := strings.CutPrefix(key, pkg+" "); is && test != "" {
			fmt.Fprintf(r.out, "%s had not ended:\n%s", test, strings.Join(output, ""))
			delete(r.output, key)
		}
	}
}

// reason is what t.Skip said: `    file_test.go:12: reason`.
func reason(output []string) string {
	for _, line := range output {
		if _, rest, ok := strings.Cut(strings.TrimSpace(line), "_test.go:"); ok {
			if _, text, ok := strings.Cut(rest, ": "); ok {
				return text
			}
		}
	}
	return "no reason given"
}

func (r *report) summary() {
	for _, line := range r.drawn {
		fmt.Fprintln(r.out, "drawn: "+line)
	}
	var reasons []string
	for why := range r.reasons {
		reasons = append(reasons, why)
	}
	sort.Strings(reasons)
	for _, why := range reasons {
		tests := r.reasons[why]
		fmt.Fprintf(r.out, "skipped %d: %s (%s", len(tests), why, tests[0])
		if len(tests) > 1 {
			fmt.Fprint(r.out, ", ...")
		}
		fmt.Fprintln(r.out, ")")
	}
	for _, line := range r.again {
		fmt.Fprintln(r.out, "again alone: "+line)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
}
