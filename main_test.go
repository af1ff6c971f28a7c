package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"monotron/internal/exitcode"
)

// Claim (docs/exit-codes.md): a command that is not there, of monotron or of a
// command with others under it, is a usage error that says what there is.
func TestUnknownCommands(t *testing.T) {
	for line, want := range map[string]string{
		"pretrain_gp":     `monotron has no command "pretrain_gp"; did you mean pretrain_gpt?`,
		"zzzzzz":          `monotron has no command "zzzzzz"; monotron --help lists them`,
		"inspect dateset": `monotron inspect has no command "dateset"; did you mean dataset?`,
		"plan zzzzzz":     `monotron plan has no command "zzzzzz"; monotron plan --help lists them`,
	} {
		app := newApp()
		app.Writer, app.ErrWriter = io.Discard, io.Discard
		if err := app.Run(append([]string{"monotron"}, strings.Fields(line)...)); exitcode.CodeOf(err) != exitcode.Usage || err.Error() != want {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestEveryCommandHasAnExample: a command without one is not done.
func TestEveryCommandHasAnExample(t *testing.T) {
	for _, c := range commands() {
		if _, err := os.Stat(filepath.Join("examples", c.Name+".sh")); err != nil {
			t.Errorf("%s has no example: %v", c.Name, err)
		}
	}
}

// Claim: the version is one line, and a flag in front of a command, or of a group of
// commands, is a wrong command line of one line.
func TestFlagsInFrontOfACommand(t *testing.T) {
	for _, c := range []struct {
		line string
		code exitcode.Code
		says string
	}{
		{"--version", exitcode.Done, ""},
		{"version", exitcode.Done, ""},
		{"--bogus", exitcode.Usage, "-bogus"},
		{"--bogus pretrain_gpt", exitcode.Usage, "-bogus"},
		{"inspect --bogus", exitcode.Usage, "-bogus"},
	} {
		app := newApp()
		var out bytes.Buffer
		app.Writer, app.ErrWriter = &out, &out
		err := app.Run(append([]string{"monotron"}, strings.Fields(c.line)...))
		if exitcode.CodeOf(err) != c.code || err != nil && (!strings.Contains(err.Error(), c.says) || out.Len() > 0) {
			t.Errorf("%s: %v, %q", c.line, err, out.String())
		}
		if err == nil && strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s: %q", c.line, out.String())
		}
	}
}
