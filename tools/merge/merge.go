// Package merge is the command merge_datasets: it joins all pairs of a folder.
package merge

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/dataset"
	"monotron/fault"
	"monotron/tools/internal/command"
)

// Command is merge_datasets.
func Command() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "merge_datasets",
		Usage: "join the .bin/.idx pairs of a folder into one",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "input", Usage: "folder that holds pairs and nothing else; they are joined in the order of their names"},
			&cli.StringFlag{Name: "output-prefix", Usage: "path of the new pair, without .bin and .idx"},
			&cli.BoolFlag{Name: "multimodal", Usage: "refused: multimodal files are not supported"},
		},
		Action: run,
	})
}

func run(c *cli.Context) error {
	if err := command.NoArgs(c); err != nil {
		return err
	}
	in, out := c.String("input"), c.String("output-prefix")
	if in == "" || out == "" {
		return fault.Errorf(fault.Usage, "--input and --output-prefix are needed")
	}
	if c.Bool("multimodal") {
		return fault.Errorf(fault.Usage, "--multimodal: files with modes are not supported here, text only")
	}
	prefixes, err := pairs(in)
	if err != nil {
		return err
	}
	if err := dataset.Merge(out, prefixes); err != nil {
		return err
	}
	fmt.Fprintf(c.App.ErrWriter, "%s: %d pairs joined\n", out, len(prefixes))
	return nil
}

// pairs lists the prefixes in dir by code point; a file without its other half
// is an error.
func pairs(dir string) (prefixes []string, err error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, fault.Errorf(fault.NoInput, "--input %s: no such folder", dir)
	}
	if err != nil {
		return nil, fault.With(fault.IO, err)
	}
	have := map[string]int{}
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if e.IsDir() || ext != ".bin" && ext != ".idx" {
			return nil, fault.Errorf(fault.BadData, "%s is no .bin or .idx file; --input must hold pairs and nothing else", filepath.Join(dir, e.Name()))
		}
		have[strings.TrimSuffix(e.Name(), ext)]++
	}
	for name, files := range have {
		if files != 2 {
			return nil, fault.Errorf(fault.BadData, "%s: the .bin or the .idx file of the pair is missing", filepath.Join(dir, name))
		}
		prefixes = append(prefixes, filepath.Join(dir, name))
	}
	if len(prefixes) == 0 {
		return nil, fault.Errorf(fault.NoInput, "%s holds no .bin/.idx pair", dir)
	}
	slices.Sort(prefixes)
	return prefixes, nil
}
