package launch

import (
	"path/filepath"
	"slices"

	"monotron/megatron/arguments"
	"monotron/megatron/config"
)

// commandLine is what the flags and the --config file of the command to start say. What is wrong
// with them is the ranks' to say: they know more.
type commandLine struct {
	ours   bool // pretrain_gpt
	config config.Run
	report *arguments.Report
	err    error
}

// readLine reads the flags of pretrain_gpt, or of another program that takes some of its.
func readLine(words []string, ranks int) commandLine {
	at := slices.IndexFunc(words, func(w string) bool { return filepath.Base(w) == "pretrain_gpt" })
	options := arguments.Options{Layouts: true, Experts: true, Partial: true, Ranks: ranks}
	c, r, err := arguments.ParseWith(options, words[max(0, at)+1:])
	return commandLine{at >= 0, c, r, err}
}

func (l *commandLine) given(flag string) bool { return l.report.Given(flag) }
