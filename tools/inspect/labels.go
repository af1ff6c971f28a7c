package inspect

import (
	"bufio"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/dataset/sft"
	"monotron/internal/argv"
	"monotron/internal/exitcode"
	runs "monotron/megatron/config"
	"monotron/megatron/training"
	"monotron/tokenizer"
	"monotron/tools/internal/command"
)

// runLabels prints rows as tuning sees them.
func runLabels(c *cli.Context) error {
	if c.String("finetune-data") == "" {
		return exitcode.Errorf(exitcode.Usage, "--labels needs --finetune-data, a file of JSON lines")
	}
	// Tokenizer and settings as tuning takes them.
	named, err := labelTokenizer(c)
	if err != nil {
		return err
	}
	tok, err := tokenizer.FromConfig(named)
	if err != nil {
		return err
	}
	run := runs.Run{Step: runs.Step{SeqLength: c.Int("seq-length")}, Tokenizer: named,
		Tuning: runs.Tuning{Method: c.String("tuning"), Data: c.String("finetune-data"), ChatTemplate: c.String("chat-template"), LearnPrompts: c.Bool("train-on-prompts")}}
	if run.Tuning.Method != runs.TuneSupervised && run.Tuning.Prefers() == nil {
		return argv.WrongChoice("tuning", run.Tuning.Method, "sft", "dpo", "ipo", "orpo", "simpo", "kto")
	}
	settings, err := training.TuningConfig(&run, tok)
	if err != nil {
		return err
	}
	rows, err := labelledRows(&run, tok, settings)
	if err != nil {
		return err
	}
	if len(rows) == 0 {
		return exitcode.Errorf(exitcode.BadData, "%s has no rows; write one JSON object per line, or a JSON array of objects", run.Tuning.Data)
	}
	// Rows from first on, each with one or more sequences.
	first, count := c.Int64("first"), c.Int64("count")
	if n := int64(len(rows)); first > n || count > n-first {
		return exitcode.Errorf(exitcode.Usage, "--first %d --count %d are out of range: the file has %d rows", first, count, n)
	}
	w := bufio.NewWriter(c.App.Writer)
	for _, r := range rows[first : first+count] {
		for i, d := range r.sequences {
			printLabels(w, &d, tok, r.names[i])
		}
	}
	return exitcode.With(exitcode.IO, w.Flush())
}

// labelled is a row with its sequences and what they are; "": the row's only one.
type labelled struct {
	sequences []sft.Document
	names     []string
}

// labelledRows reads the rows of --finetune-data.
func labelledRows(run *runs.Run, tok tokenizer.Tokenizer, settings sft.Config) (rows []labelled, err error) {
	if run.Tuning.Prefers() == nil {
		docs, err := sft.Read(run.Tuning.Data, tok, settings)
		for _, d := range docs {
			rows = append(rows, labelled{[]sft.Document{d}, []string{""}})
		}
		return rows, err
	}
	all, err := sft.ReadPreferences(run.Tuning.Data, tok, settings)
	for _, r := range all {
		names := []string{", chosen", ", rejected"}
		switch {
		case settings.Rule.Paired():
		case r.Good:
			names = []string{", good"}
		default:
			names = []string{", bad"}
		}
		rows = append(rows, labelled{r.Answers, names})
	}
	return rows, err
}

// labelTokenizer is the tokenizer of --load, or the one that the tokenizer's flags name.
func labelTokenizer(c *cli.Context) (t tokenizer.Config, err error) {
	if c.String("load") == "" {
		return command.TokenizerConfig(c)
	}
	flags, err := training.CheckpointFlags(c.String("load"), -1)
	if err == nil && flags == nil {
		err = errors.New("no model is in that folder")
	}
	if err != nil {
		return t, fmt.Errorf("--load %s: %w", c.String("load"), err)
	}
	one := func(name string) string { return strings.Join(flags[name], " ") }
	number := func(name string) *int {
		if n, err := strconv.Atoi(one(name)); err == nil {
			return &n
		}
		return nil
	}
	t = tokenizer.Config{Type: one("tokenizer-type"), Model: one("tokenizer-model"), VocabFile: one("vocab-file"), MergeFile: one("merge-file"),
		SpecialTokens: flags["tokenizer-special-tokens"], NullEOD: number("null-tokenizer-eod-id"), NullPad: number("null-tokenizer-pad-id"),
		TikPattern: one("tiktoken-pattern"), TikSpecials: number("tiktoken-num-special-tokens")}
	if n := number("vocab-size"); n != nil {
		t.VocabSize = *n
	}
	_, t.NoSpecial = flags["tokenizer-hf-no-include-special-tokens"]
	_, t.Legacy = flags["tokenizer-sentencepiece-legacy"]
	return t, nil
}

// printLabels prints a sequence of a row of the file: a line for each token.
func printLabels(w *bufio.Writer, d *sft.Document, tok tokenizer.Tokenizer, what string) {
	fmt.Fprintf(w, "line %d%s: %d tokens, %d of them learned", d.Line, what, len(d.IDs), d.Learned())
	if d.Cut > 0 {
		fmt.Fprintf(w, "; %d more are cut off", d.Cut)
	}
	fmt.Fprintf(w, "\n%8s %8s %8s  %-10s %s\n", "token", "id", "label", "turn", "text")
	turn, at := "", 0
	for i, id := range d.IDs {
		for at < len(d.Turns) && d.Turns[at].At <= i {
			turn = fmt.Sprintf("%d %s", at, d.Turns[at].Role)
			at++
		}
		label := "-100"
		if learns(d, i) {
			label = fmt.Sprint(id)
		}
		fmt.Fprintf(w, "%8d %8d %8s  %-10s %q\n", i, id, label, turn, tok.AppendBytes(nil, id))
	}
}

// learns reports whether the prediction of token i is part of the loss.
func learns(d *sft.Document, i int) bool {
	for _, s := range d.Learn {
		if i >= max(1, s[0]) && i < s[1] {
			return true
		}
	}
	return false
}
