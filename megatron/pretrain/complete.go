package pretrain

import (
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/megatron/arguments/table"
)

// complete prints what may follow the words so far, one a line: the values of a flag that has a fixed choice
// of them, else flags. The last word of the process is urfave/cli's, by which a shell asks.
func complete(c *cli.Context) {
	values := choices(os.Args[:max(0, len(os.Args)-1)])
	if len(values) == 0 {
		cli.DefaultCompleteWithFlags(c.Command)(c)
		return
	}
	fmt.Fprintln(c.App.Writer, strings.Join(values, "\n"))
}

// choices are the values that the flag takes which the last word, or the one before it, names; nil: it takes
// any, or no such flag exists. A shell gives no word for one that has not begun.
func choices(words []string) []string {
	for i := len(words) - 1; i >= max(0, len(words)-2); i-- {
		name, is := strings.CutPrefix(words[i], "--")
		if !is {
			continue
		}
		if f := table.Find(name); f != nil && f.Class == table.Works {
			return f.Choices
		}
		return nil
	}
	return nil
}
