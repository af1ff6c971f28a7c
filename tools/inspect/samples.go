package inspect

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/dataset"
	"monotron/internal/argv"
	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	runs "monotron/megatron/config"
	"monotron/mpu/topology"
	"monotron/tokenizer"
	"monotron/tools/internal/command"
)

// Samples is the subcommand `inspect samples`.
func Samples() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "samples",
		Usage: "print samples as the trainer reads them, and their index arrays",
		Flags: append([]cli.Flag{
			// Megatron's flags of data sets: the same arrays and samples as in training.
			&cli.StringSliceFlag{Name: "data-path", Usage: "read data from the .bin and .idx files with these prefixes, or from WEIGHT PREFIX pairs"},
			&cli.StringSliceFlag{Name: "train-data-path", Usage: "read training data from these prefixes, or WEIGHT PREFIX pairs"},
			&cli.StringSliceFlag{Name: "valid-data-path", Usage: "read validation data from these prefixes, or WEIGHT PREFIX pairs"},
			&cli.StringSliceFlag{Name: "test-data-path", Usage: "read test data from these prefixes, or WEIGHT PREFIX pairs"},
			&cli.StringFlag{Name: "data-args-path", Usage: "read the arguments of --data-path from this file"},
			&cli.StringFlag{Name: "per-split-data-args-path", Usage: "read the data paths of training, validation and test from this JSON file, which has the lists train, valid and test"},
			&cli.BoolFlag{Name: "mock-data", Usage: "use generated tokens instead of files"},
			&cli.StringFlag{Name: "split", Usage: "set the relative sizes of training, validation and test data, as in 969,30,1"},
			command.Between(1, command.Sizes, &cli.IntFlag{Name: "seq-length", Value: 1024, Usage: "set the number of tokens per sample"}),
			command.Between(0, math.MaxUint64, &cli.Uint64Flag{Name: "seed", Value: 1234, Usage: "set the seed of the order of the data"}),
			&cli.StringFlag{Name: "data-cache-path", Usage: "keep the index arrays in this folder (default: the folder of the data)"},
			&cli.BoolFlag{Name: "reset-position-ids", Usage: "restart positions after each end of document"},
			&cli.BoolFlag{Name: "reset-attention-mask", Usage: "mask attention across an end of document"},
			&cli.BoolFlag{Name: "eod-mask-loss", Usage: "exclude end-of-document tokens from the loss"},
			&cli.BoolFlag{Name: "dataloader-inter-document-masking", Usage: "mask attention across the end of each sequence of the corpus"},
			&cli.BoolFlag{Name: "allow-ambiguous-pad-tokens", Usage: "treat a padding id that is also the end-of-document id as padding"},
			&cli.BoolFlag{Name: "no-mmap-bin-files", Usage: "read .bin files with read calls instead of mapping them into memory"},
			command.Between(0, 1000, &cli.Float64Flag{Name: "mid-level-dataset-surplus", Value: 0.005, Usage: "set the fraction of spare samples per blended dataset"}),
			&cli.StringFlag{Name: "train-samples", Usage: "make `N` training samples (default: one epoch)"},
			&cli.StringFlag{Name: "valid-samples", Usage: "make `N` validation samples (default: one epoch)"},
			&cli.StringFlag{Name: "test-samples", Usage: "make `N` test samples (default: one epoch)"},
			// What is printed.
			&cli.StringFlag{Name: "show", Value: "train", Usage: "print samples of this split: train, valid or test"},
			command.Between(0, command.Counts, &cli.Int64Flag{Name: "first", Usage: "print from this sample on"}),
			command.Between(0, command.Counts, &cli.Int64Flag{Name: "count", Value: 1, Usage: "print N samples, one JSON object per line"}),
			&cli.BoolFlag{Name: "text", Usage: "print the tokens as text too"},
			// Rows of fine-tuning instead.
			&cli.BoolFlag{Name: "labels", Usage: "print the rows of --finetune-data token by token: id, label, turn and text; the loss ignores a label of -100"},
			&cli.StringFlag{Name: "finetune-data", Usage: "with --labels: read rows from this file of JSON lines"},
			&cli.StringFlag{Name: "tuning", Value: runs.TuneSupervised, Usage: "with --labels: read the rows as for this tuning method: sft, dpo, ipo, orpo, simpo or kto"},
			&cli.StringFlag{Name: "load", Usage: "with --labels: use the tokenizer and the chat template of this model"},
			&cli.StringFlag{Name: "chat-template", Usage: "with --labels: read the chat template from this file, in Jinja (default: the template of the tokenizer)"},
			&cli.BoolFlag{Name: "train-on-prompts", Usage: "with --labels: label every token"},
			&cli.StringFlag{Name: "write-index", Usage: "`DIR`: write the index arrays (.npy) and descriptions of all splits to this folder"},
		}, append(layoutFlags(), command.TokenizerFlags()...)...),
		Action: runSamples,
	})
}

func runSamples(c *cli.Context) error {
	if err := command.NoArgs(c); err != nil {
		return err
	}
	if c.Bool("labels") {
		return runLabels(c)
	}
	// The datasets as a run builds them, with the tokenizer that the files name.
	config, sizes, err := config(c)
	if err != nil {
		return err
	}
	settings, err := command.TokenizerConfig(c)
	if err != nil {
		return err
	}
	if settings.IsZero() {
		settings, _ = dataset.RecordedTokenizer(config.Prefixes())
	}
	tok, err := tokenizer.FromConfig(settings)
	if err != nil {
		return err
	}
	var ranks topology.Sizes
	if c.Bool("ranks") {
		if ranks, err = layout(c); err != nil {
			return err
		}
	}
	train, valid, test, err := dataset.Build(config, tok, sizes)
	if err != nil {
		return err
	}
	sets := map[string]dataset.Dataset{"train": train, "valid": valid, "test": test}
	// What is written, then what is printed.
	if dir := c.String("write-index"); dir != "" {
		for name, d := range sets {
			if err := writeIndex(dir, name, d); err != nil {
				return err
			}
		}
	}
	show, known := sets[c.String("show")]
	if !known {
		return argv.WrongChoice("show", c.String("show"), "train", "valid", "test")
	}
	w := bufio.NewWriter(c.App.Writer)
	if c.Bool("ranks") {
		return errors.Join(printRanks(c, w, show, ranks), exitcode.With(exitcode.IO, w.Flush()))
	}
	return errors.Join(printSamples(c, w, tok, show), exitcode.With(exitcode.IO, w.Flush()))
}

func config(c *cli.Context) (config dataset.Config, sizes [3]*int64, err error) {
	surplus := c.Float64("mid-level-dataset-surplus")
	config = dataset.Config{
		DataPath: c.StringSlice("data-path"), TrainDataPath: c.StringSlice("train-data-path"),
		ValidDataPath: c.StringSlice("valid-data-path"), TestDataPath: c.StringSlice("test-data-path"),
		DataArgsPath: c.String("data-args-path"), PerSplitDataArgsPath: c.String("per-split-data-args-path"),
		Mock: c.Bool("mock-data"), Split: c.String("split"), SequenceLength: c.Int("seq-length"),
		Seed: uint32(c.Uint64("seed")), CachePath: c.String("data-cache-path"), Surplus: surplus,
		ResetPositionIDs: c.Bool("reset-position-ids"), ResetAttentionMask: c.Bool("reset-attention-mask"),
		EODMaskLoss: c.Bool("eod-mask-loss"), NoMmapBinFiles: c.Bool("no-mmap-bin-files"),
		InterDocumentMasking: c.Bool("dataloader-inter-document-masking"), AllowAmbiguousPad: c.Bool("allow-ambiguous-pad-tokens"),
		Notice: func(text string) { fmt.Fprintln(c.App.ErrWriter, text) },
	}
	if c.Uint64("seed") > 1<<32-1 {
		return config, sizes, exitcode.Errorf(exitcode.Usage, "--seed must be from 0 to 4294967295, not %d", c.Uint64("seed"))
	}
	for i, name := range []string{"train-samples", "valid-samples", "test-samples"} {
		if text := c.String(name); text != "" {
			var n int64
			if err := json.Unmarshal([]byte(text), &n); err != nil || n < 0 {
				return config, sizes, exitcode.Errorf(exitcode.Usage, "--%s must be a number of samples, not %q", name, text)
			}
			sizes[i] = &n
		}
	}
	return config, sizes, nil
}

// printed is a sample as JSON; doc_start is the first position each query sees.
type printed struct {
	Index       int64     `json:"index"`
	Tokens      []int32   `json:"tokens"`
	Labels      []int32   `json:"labels"`
	LossMask    []float32 `json:"loss_mask"`
	PositionIDs []int32   `json:"position_ids"`
	DocStart    []int32   `json:"doc_start"`
	CuSeqlens   []int32   `json:"cu_seqlens,omitempty"`
	Text        string    `json:"text,omitempty"`
}

func printSamples(c *cli.Context, w *bufio.Writer, tok tokenizer.Tokenizer, d dataset.Dataset) error {
	if d == nil {
		return exitcode.Errorf(exitcode.Usage, "--show %s: this split has no data", c.String("show"))
	}
	first, count := c.Int64("first"), c.Int64("count")
	if first < 0 || count < 0 || first > d.Len() || count > d.Len()-first {
		return exitcode.Errorf(exitcode.Usage, "--first %d --count %d are out of range: the split has %d samples", first, count, d.Len())
	}
	fmt.Fprintf(c.App.ErrWriter, "%s: %d samples\n", c.String("show"), d.Len())
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for k := first; k < first+count; k++ {
		s, err := d.Sample(k)
		if err != nil {
			return err
		}
		p := printed{Index: k, Tokens: s.Tokens, Labels: s.Labels, LossMask: s.LossMask, PositionIDs: s.PositionIDs, DocStart: s.DocStart, CuSeqlens: s.CuSeqlens}
		if c.Bool("text") {
			p.Text = tok.Decode(s.Tokens)
		}
		if err := e.Encode(p); err != nil {
			return exitcode.With(exitcode.IO, err)
		}
	}
	return nil
}

// writeIndex writes the arrays of a split, members of a blend by number.
func writeIndex(dir, name string, d dataset.Dataset) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	// An array a file, as Megatron's cache has them, and the description next to them.
	write := func(what, description string, arrays map[string]dataset.Array) error {
		err := atomicfile.WriteFile(filepath.Join(dir, what+"-description.txt"), 0o666, []byte(description))
		for file, a := range arrays {
			err = errors.Join(err, atomicfile.WriteFile(filepath.Join(dir, what+"-"+file+".npy"), 0o666, a.NPYHeader(), a.Data))
		}
		return err
	}
	gpt := func(what string, g *dataset.GPT) error {
		return write(what, g.DescriptionJSON(), map[string]dataset.Array{
			"document_index": g.DocumentIndex, "sample_index": g.SampleIndex, "shuffle_index": g.ShuffleIndex})
	}
	switch d := d.(type) {
	case *dataset.GPT:
		return gpt(name, d)
	case *dataset.Blended:
		err := write(name, d.DescriptionJSON(), map[string]dataset.Array{
			"dataset_index": d.DatasetIndex, "dataset_sample_index": d.DatasetSampleIndex})
		for i, m := range d.Members {
			err = errors.Join(err, gpt(strings.Join([]string{name, fmt.Sprint(i)}, "-"), m))
		}
		return err
	}
	return nil
}
