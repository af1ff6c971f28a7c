package shell

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
)

// The shells ask the program itself: the words so far and --generate-bash-completion
// (urfave/cli's name for it) give the words that may follow, one a line.
const bash = `# bash: source <(monotron completion bash), or put this into a file of bash-completion
_monotron() {
  local cur=${COMP_WORDS[COMP_CWORD]} words
  words=$("${COMP_WORDS[@]:0:COMP_CWORD}" ${cur:+"$cur"} --generate-bash-completion 2>/dev/null)
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _monotron %s
`

const zsh = `#compdef %s
# zsh: source <(monotron completion zsh), or put this as _monotron into a folder of $fpath
_monotron() {
  local cur=${words[CURRENT]}
  local -a answers
  answers=(${(f)"$("${(@)words[1,CURRENT-1]}" ${cur:+"$cur"} --generate-bash-completion 2>/dev/null)"})
  compadd -- $answers || _files
}
compdef _monotron %[1]s
`

const fish = `# fish: monotron completion fish | source, or put this into ~/.config/fish/completions/monotron.fish
function __monotron
    set -l words (commandline -opc)
    set -l cur (commandline -ct)
    $words $cur --generate-bash-completion 2>/dev/null
end
for name in %s
    complete -c $name -a '(__monotron)'
end
`

var scripts = map[string]string{"bash": bash, "zsh": zsh, "fish": fish}

// Completion prints a completion script for a shell; links are the names, in addition to
// monotron's own, that the program is called by.
func Completion(links ...string) *cli.Command {
	return command.Wrap(&cli.Command{
		Name:      "completion",
		Usage:     "print a script that completes commands and flags in bash, zsh or fish",
		ArgsUsage: "bash|zsh|fish",
		Action: func(c *cli.Context) error {
			script := scripts[c.Args().First()]
			if script == "" || c.Args().Len() != 1 {
				return exitcode.Errorf(exitcode.Usage, "completion needs the name of a shell, which must be bash, zsh or fish, not %q", strings.Join(c.Args().Slice(), " "))
			}
			_, err := fmt.Fprintf(c.App.Writer, script, strings.Join(append([]string{"monotron"}, links...), " "))
			return exitcode.With(exitcode.IO, err)
		},
	})
}
