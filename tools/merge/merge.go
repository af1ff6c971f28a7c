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
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/tools/internal/command"
)

// Command is merge_datasets.
func Command() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "merge_datasets",
		Usage: "join the .bin/.idx pairs of a folder into one",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "input", Usage: "join the pairs of this folder in the order of their names; it must contain only pairs"},
			&cli.StringFlag{Name: "output-prefix", Usage: "write the new pair to this path, without .bin and .idx; this path must not be one of the pairs of --input"},
			&cli.BoolFlag{Name: "multimodal", Usage: "read and write a mode for each sequence"},
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
		return exitcode.Errorf(exitcode.Usage, "--input or --output-prefix is missing; give both")
	}
	prefixes, err := pairs(in)
	if err != nil {
		return err
	}
	if err := apart(out, prefixes); err != nil {
		return err
	}
	if err := dataset.Merge(dataset.BuilderConfig{Prefix: out, Multimodal: c.Bool("multimodal")}, prefixes); err != nil {
		return err
	}
	joined, made, err := dataset.JoinedSidecar(prefixes)
	if err != nil {
		return err
	}
	if made { // all were made with one tokenizer, which training then knows
		err = joined.Write(out)
	} else {
		err = dataset.RemoveSidecar(out)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(c.App.ErrWriter, "%s: %d pairs joined\n", out, len(prefixes))
	if atomicfile.Same(filepath.Dir(out), in) {
		fmt.Fprintf(c.App.ErrWriter, "note: %s is in the folder of --input, so the next merge_datasets of this folder would also join this pair; move it to another folder\n", out)
	}
	return nil
}

// apart refuses an output that is one of the pairs to join: an earlier result of this command in the same folder, whose
// documents would be joined again, or a pair that would be lost.
func apart(out string, prefixes []string) error {
	for _, p := range prefixes {
		if filepath.Base(p) == filepath.Base(out) && atomicfile.Same(filepath.Dir(p), filepath.Dir(out)) {
			return exitcode.Errorf(exitcode.Usage, "--output-prefix %s is one of the pairs of --input, so it would be joined and then replaced; choose a prefix in another folder, or remove the pair if it is an earlier result", out)
		}
	}
	var outputs, inputs []string
	for _, ext := range []string{".bin", ".idx", ".json"} {
		outputs = append(outputs, out+ext)
		for _, p := range prefixes {
			inputs = append(inputs, p+ext)
		}
	}
	return command.Apart("output-prefix", outputs, inputs)
}

// pairs lists the prefixes in dir by code point. Each file must belong to a pair;
// folders (such as the caches of index arrays) are passed over.
func pairs(dir string) (prefixes []string, err error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return nil, exitcode.Errorf(exitcode.NoInput, "--input %s: the folder does not exist", dir)
	}
	if err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	have, names := map[string]bool{}, map[string]bool{}
	for _, e := range entries {
		if info, err := os.Stat(filepath.Join(dir, e.Name())); err == nil && !info.IsDir() {
			have[e.Name()] = true
			names[strings.TrimSuffix(e.Name(), filepath.Ext(e.Name()))] = true
		}
	}
	for name := range names {
		prefix, idx, bin := filepath.Join(dir, name), have[name+".idx"], have[name+".bin"]
		switch {
		case !idx && !bin:
			return nil, exitcode.Errorf(exitcode.BadData, "%s.* is not a .bin/.idx pair; the folder of --input must contain only pairs", prefix)
		case !idx:
			return nil, exitcode.Errorf(exitcode.BadData, "%s.idx is missing, although %[1]s.bin exists; the folder of --input must contain only pairs", prefix)
		case !bin:
			return nil, exitcode.Errorf(exitcode.BadData, "%s.bin is missing, although %[1]s.idx exists; the folder of --input must contain only pairs", prefix)
		}
		prefixes = append(prefixes, prefix)
	}
	if len(prefixes) == 0 {
		return nil, exitcode.Errorf(exitcode.NoInput, "%s has no .bin/.idx pair", dir)
	}
	slices.Sort(prefixes)
	return prefixes, nil
}
