package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/megatron/arguments/table"
)

// Claim (docs/exit-codes.md): a command that is not there, of monotron or of a
// command with others under it, is a usage error that says what there is.
func TestUnknownCommands(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "text.idx"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"inspect " + dir:           `monotron inspect has no command "` + dir + `"; did you mean monotron inspect checkpoint ` + dir + `?`,
		"inspect " + dir + "/text": `monotron inspect has no command "` + dir + `/text"; did you mean monotron inspect dataset ` + dir + `/text?`,
		"pretrain_gp":              `monotron has no command "pretrain_gp"; did you mean pretrain_gpt?`,
		"zzzzzz":                   `monotron has no command "zzzzzz"; monotron --help lists them`,
		"hlep":                     `monotron has no command "hlep"; did you mean help?`,
		"inspect hepl":             `monotron inspect has no command "hepl"; did you mean help?`,
		"inspect dateset":          `monotron inspect has no command "dateset"; did you mean dataset?`,
		"plan zzzzzz":              `monotron plan has no command "zzzzzz"; monotron plan --help lists them`,
	} {
		app := newApp()
		app.Writer, app.ErrWriter = io.Discard, io.Discard
		if err := app.Run(append([]string{"monotron"}, strings.Fields(line)...)); exitcode.CodeOf(err) != exitcode.Usage || err.Error() != want {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// Claim: README.md lists every command, and each of those under it.
func TestReadmeListsEveryCommand(t *testing.T) {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "\n## Commands\n")
	list, _, _ = strings.Cut(list, "\n## ")
	var check func(path string, c *cli.Command)
	check = func(path string, c *cli.Command) {
		name := strings.TrimSpace(path + " " + c.Name)
		if (c.Action != nil || len(c.Subcommands) == 0) && !c.Hidden && !strings.Contains(list, "`"+name+"`") {
			t.Errorf("README.md does not list %s", name)
		}
		for _, inner := range c.Subcommands {
			check(name, inner)
		}
	}
	for _, c := range commands() {
		check("", c)
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

// Claim (README.md): the help of every command, and of those under it, names its full path, shows
// an example, and every flag in an example is one of the command, of launch or of pretrain_gpt.
func TestHelpShowsExamples(t *testing.T) {
	known := map[string]bool{"--help": true, "--version": true, "--hostfile": true} // of launch, which starts other commands
	for _, f := range table.All() {
		known["--"+f.Name] = true
	}
	var check func(path []string, list []*cli.Command)
	check = func(path []string, list []*cli.Command) {
		for _, c := range list {
			if c.Hidden || c.Name == "help" || c.Name == "pretrain_gpt" { // its help is package arguments'
				continue
			}
			here := append(slices.Clone(path), c.Name)
			text, err := helpOf(here[1:]...)
			name := strings.Join(here, " ")
			if err != nil || !strings.HasPrefix(text, name+": ") {
				t.Errorf("%s --help: %v, %.80q", name, err, text)
			}
			own := map[string]bool{}
			for _, f := range c.Flags {
				for _, n := range f.Names() {
					own["--"+n] = true
				}
			}
			examples := regexp.MustCompile(`(?m)^ *(monotron|source|pretrain_gpt) .*(\\\n.*)*`).FindAllString(text, -1)
			if len(examples) == 0 && c.Name != "version" {
				t.Errorf("%s --help shows no example", name)
			}
			for _, example := range examples {
				for _, word := range strings.Fields(example) {
					if flag, _, _ := strings.Cut(word, "="); strings.HasPrefix(flag, "--") && len(flag) > 2 && !own[flag] && !known[flag] && len(c.Subcommands) == 0 {
						t.Errorf("%s --help: its example has %s, which is no flag of it", name, flag)
					}
				}
			}
			check(here, c.Subcommands)
		}
	}
	check([]string{"monotron"}, commands())
}

// helpOf is what --help prints of a command.
func helpOf(words ...string) (string, error) {
	app := newApp()
	var out bytes.Buffer
	app.Writer, app.ErrWriter = &out, &out
	err := app.Run(append(append([]string{"monotron"}, words...), "--help"))
	return out.String(), err
}

// Claim (docs/exit-codes.md): a flag that a command does not have is a usage error of one line, which names the nearest
// one; so does an unexpected word for a command that takes none.
func TestWrongFlagsOfEveryCommand(t *testing.T) {
	run := func(words ...string) error {
		app := newApp()
		app.Writer, app.ErrWriter = io.Discard, io.Discard
		return app.Run(append([]string{"monotron"}, words...))
	}
	var check func(path []string, list []*cli.Command)
	check = func(path []string, list []*cli.Command) {
		for _, c := range list {
			here := append(slices.Clone(path), c.Name)
			if len(c.Subcommands) == 0 || c.Action == nil {
				err := run(append(slices.Clone(here), "--no-such-flag-at-all")...)
				open := slices.Contains([]string{"finetune", "plan table", "plan search"}, strings.Join(here, " ")) // which miss other flags first
				if exitcode.CodeOf(err) != exitcode.Usage || !open && !strings.Contains(err.Error(), "no-such-flag-at-all") {
					t.Errorf("%s: code %d, %v", strings.Join(here, " "), exitcode.CodeOf(err), err)
				}
			}
			check(here, c.Subcommands)
		}
	}
	check(nil, commands())
	for line, want := range map[string]string{"doctor --jsno": "did you mean --json?", "doctor --host": "--hosts", "version now": `"now" does not belong to a flag`, "completion bash zsh": "completion needs the name of a shell", "man nothing": "man accepts the name of one command"} {
		if err := run(strings.Fields(line)...); exitcode.CodeOf(err) != exitcode.Usage || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// Claim (README.md): what people type for help and version works.
func TestOtherSpellings(t *testing.T) {
	app := newApp()
	for line, want := range map[string]string{
		"help": "--help", "help plan search": "plan search --help", "-V": "version", "serve --version": "version", "serve --load x": "serve --load x", "zzz --version": "zzz --version",
		"inspect checkpoint --version": "version", "plan search --version": "version", "launch pretrain_gpt --version": "launch pretrain_gpt --version",
		"doctor --help-all": "doctor --help-all", "generate --help-all": "generate --help-all", "zzz --help-all": "zzz --help",
	} {
		if got := strings.Join(rewritten(app, append([]string{"monotron"}, strings.Fields(line)...))[1:], " "); got != want {
			t.Errorf("%s becomes %s, want %s", line, got, want)
		}
	}
	app.Writer, app.ErrWriter = io.Discard, io.Discard
	if err := app.Run([]string{"monotron", "train"}); err == nil || !strings.Contains(err.Error(), "did you mean pretrain_gpt?") {
		t.Error(err)
	}
	all, err := helpOf("serve")
	if err != nil || strings.Contains(all, "--merge-file") || !strings.Contains(all, "tokenizer (12)") {
		t.Errorf("%v, %s", err, all)
	}
	var out bytes.Buffer
	app = newApp()
	app.Writer, app.ErrWriter = &out, &out
	if err := app.Run([]string{"monotron", "serve", "--help-all"}); err != nil || !strings.Contains(out.String(), "--merge-file FILE") {
		t.Errorf("%v, %s", err, out.String())
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
		{"--bogus", exitcode.Usage, "unknown flag --bogus before the command"},
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
