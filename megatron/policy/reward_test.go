package policy

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"monotron/internal/exitcode"
)

func judged(texts ...string) (list []Sampled) {
	answer := "42"
	for _, text := range texts {
		list = append(list, Sampled{Prompt: json.RawMessage(`"6 x 7"`), Completion: text, Answer: &answer, Fields: map[string]json.RawMessage{"answer": json.RawMessage(`"42"`), "level": json.RawMessage("3")}})
	}
	return list
}

// Claim: exact compares without white space around the text; a pattern takes its last match, or that
// one's first group, and without an answer matches.
func TestRewards(t *testing.T) {
	answers := judged(" 42\n", "it is 42", "41, then 42", "42, no, 43", "")
	free := judged("it is 42", "none")
	for i := range free {
		free[i].Answer = nil
	}
	for _, c := range []struct {
		reward Reward
		given  []Sampled
		want   []float64
	}{
		{Exact{}, answers, []float64{1, 0, 0, 0, 0}},
		{Pattern{regexp.MustCompile(`\d+`)}, answers, []float64{1, 1, 1, 0, 0}},
		{Pattern{regexp.MustCompile(`is (\d+)`)}, answers, []float64{0, 1, 0, 0, 0}},
		{Pattern{regexp.MustCompile(`\d+`)}, free, []float64{1, 0}},
	} {
		got, err := c.reward.Of(context.Background(), c.given)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v; want %v", c.reward.Name(), got, err, c.want)
		}
	}
	if _, err := (Exact{}).Of(context.Background(), free); err == nil || !strings.Contains(err.Error(), `"6 x 7"`) {
		t.Errorf("a row without an answer: %v", err)
	}
}

// Claim: a command reads each answer with its row's fields, and gives a number or an object a line.
func TestCommandReads(t *testing.T) {
	got, err := Command{Line: `while read line; do case "$line" in *'"completion":"yes"'*'"level":3'*'"prompt":"6 x 7"'*) echo '{"reward": 1.5, "why": "so"}';; *) echo -2;; esac; done`, Time: time.Minute}.Of(context.Background(), judged("yes", "no"))
	if err != nil || !slices.Equal(got, []float64{1.5, -2}) {
		t.Errorf("%v, %v", got, err)
	}
	if got, err := (Command{Line: "echo 1; echo 2", Time: time.Minute}).Of(context.Background(), judged("unread", "too")); err != nil || !slices.Equal(got, []float64{1, 2}) {
		t.Errorf("a command that reads nothing: %v, %v", got, err)
	}
}

// Claim: a command that fails, writes too few or too many lines, no numbers, numbers without end, or does not
// end, is one line of error, and what it started is gone in time.
func TestHostileCommands(t *testing.T) {
	for _, c := range []struct{ line, says string }{
		{"exit 3", "exit status 3"},
		{"echo broken >&2; exit 1", `its message: "broken"`},
		{"echo 1", "the command wrote 1 lines for 2 answers"},
		{"true", "the command wrote nothing for 2 answers"},
		{"echo 1; echo 2; echo 3", "the command wrote more than 2 lines, the number of answers"},
		{"echo 1; echo good", `line 2 is "good"`},
		{"echo 1; echo null", `line 2 is "null"`},
		{"echo 1; echo NaN", `line 2 is "NaN"`},
		{"echo 1; echo 1e999", `line 2 is "1e999"`},
		{"echo 1; echo -1e30", "is not between -1e+09 and 1e+09"},
		{"echo '[1, 2]'; echo 1", `line 1 is "[1, 2]"`},
		{"yes", "the command wrote more than 8192 bytes for 2 answers"},
		{"printf '\\033[2J\\000'; echo 1", `line 1 is "\x1b[2J\x00`},
		{"sleep 60", "the command did not end within 300ms"},
		{"sleep 60 & sleep 60", "the command did not end within 300ms"},
		{"no-such-program-here", "exit status 127"},
	} {
		limit := time.Minute
		if strings.HasPrefix(c.line, "sleep") {
			limit = 300 * time.Millisecond
		}
		_, err := Command{Line: c.line, Time: limit}.Of(context.Background(), judged("a", "b"))
		if err == nil || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") || exitcode.CodeOf(err) != exitcode.BadData {
			t.Errorf("%s: code %d, %v; want %s", c.line, exitcode.CodeOf(err), err, c.says)
		}
	}
}

// Claim: what a command leaves running when it ends with rewards is killed: one process a batch would add up.
func TestCommandLeavesNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	line := fmt.Sprintf("sleep 600 >/dev/null 2>&1 & echo $! >%s; echo 1; echo 2", file)
	if _, err := (Command{Line: line, Time: time.Minute}).Of(context.Background(), judged("a", "b")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	for range 500 { // a killed process is there until it is collected
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(state), ") Z ") {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d still runs", pid)
}

// Claim: answers of many bytes reach a command that reads slowly.
func TestCommandReadsMuch(t *testing.T) {
	var list []Sampled
	for i := range 200 {
		list = append(list, judged(strings.Repeat(fmt.Sprint(i%10), 5000))...)
	}
	got, err := Command{Line: "sleep 0.2; while read -r line; do echo ${#line}; done", Time: time.Minute}.Of(context.Background(), list)
	if err != nil || len(got) != 200 || got[7] != got[8] || got[0] < 5000 {
		t.Errorf("%d rewards, %v", len(got), err)
	}
}
