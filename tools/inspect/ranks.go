package inspect

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"

	"github.com/urfave/cli/v2"

	"monotron/dataset"
	"monotron/internal/argv"
	"monotron/internal/exitcode"
	"monotron/mpu/topology"
	"monotron/tools/internal/command"
)

// layoutFlags say who reads which sample, as pretrain_gpt takes them.
func layoutFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "ranks", Usage: "print which ranks read which samples, one JSON object per micro-batch; --first and --count then count iterations, from 0"},
		command.Between(1, command.Sizes, &cli.IntFlag{Name: "micro-batch-size", Value: 1, Usage: "with --ranks: use N sequences per micro-batch and rank"}),
		command.Between(0, command.Sizes, &cli.IntFlag{Name: "global-batch-size", Usage: "with --ranks: use N sequences per step (default: one micro-batch on each data-parallel rank)"}),
		command.Between(1, 1<<16, &cli.IntFlag{Name: "world-size", Value: 1, Usage: "with --ranks: divide the samples among N ranks"}),
		command.Between(1, 1<<16, &cli.IntFlag{Name: "tensor-model-parallel-size", Value: 1, Usage: "with --ranks: shard each layer over N ranks"}),
		command.Between(1, 1<<16, &cli.IntFlag{Name: "context-parallel-size", Value: 1, Usage: "with --ranks: share each sequence among N ranks"}),
		command.Between(1, 1<<16, &cli.IntFlag{Name: "pipeline-model-parallel-size", Value: 1, Usage: "with --ranks: divide the layers into N pipeline stages"}),
		&cli.BoolFlag{Name: "use-tp-pp-dp-mapping", Usage: "with --ranks: number the ranks in the order tp-cp-ep-pp-dp (default: tp-cp-ep-dp-pp)"},
		&cli.StringFlag{Name: "dataloader-type", Value: "single", Usage: "with --ranks: choose the order of samples: single (one pass in the order of the index) or cyclic (repeated shuffled passes)"},
		&cli.BoolFlag{Name: "no-data-sharding", Usage: "with --ranks and cyclic: let every rank read from all shuffled samples instead of only from its own shard"},
	}
}

// reading is one micro-batch: the ranks, all with one rank in the data-parallel group, that
// work on the samples.
type reading struct {
	Iteration int64   `json:"iteration"` // that the samples are trained on in, from 1
	Micro     int64   `json:"micro_batch"`
	DP        int64   `json:"data_parallel_rank"`
	Ranks     []int   `json:"ranks"`
	Samples   []int64 `json:"samples"`
}

// printRanks answers --ranks for a split.
func printRanks(c *cli.Context, w *bufio.Writer, d dataset.Dataset, sizes topology.Sizes) error {
	if d == nil {
		return exitcode.Errorf(exitcode.Usage, "--show %s: this split has no data", c.String("show"))
	}
	micro := int64(c.Int("micro-batch-size"))
	// A round is a micro-batch of every rank, a global batch is several rounds.
	round, global := micro*int64(sizes.DP), globalBatch(c, sizes)
	first, count := c.Int64("first"), c.Int64("count")
	if last := d.Len() / global; first < 0 || count < 0 || first > last || count > last-first {
		return exitcode.Errorf(exitcode.Usage, "--first %d --count %d are out of range: there are %d samples, which make %d iterations of %d samples", first, count, d.Len(), last, global)
	}
	e := json.NewEncoder(w)
	// A line for each rank, iteration and micro-batch.
	for dp := range sizes.DP {
		s := dataset.SamplerConfig{Total: d.Len(), MicroBatch: micro, Rank: int64(dp), DP: int64(sizes.DP), Unsharded: c.Bool("no-data-sharding")}
		if c.String("dataloader-type") == "cyclic" {
			s.Order = dataset.Cyclic
		}
		sampler, err := dataset.NewSampler(s)
		if err != nil {
			return err
		}
		for i := first; i < first+count; i++ {
			for m := range global / round {
				numbers, err := sampler.Batch(i*global+m*round, nil)
				if errors.Is(err, io.EOF) {
					return nil
				}
				if err != nil {
					return err
				}
				if err := e.Encode(reading{i + 1, m, int64(dp), readers(sizes, dp), numbers}); err != nil {
					return exitcode.With(exitcode.IO, err)
				}
			}
		}
	}
	return nil
}

// readers are the ranks with one rank in the data-parallel group. All stages of the
// pipeline work on a micro-batch, though only the outer ones read its ids.
func readers(s topology.Sizes, dp int) (list []int) {
	for rank := range s.World() {
		if s.At(rank).DP == dp {
			list = append(list, rank)
		}
	}
	return list
}

// layout reads the flags of ranks.
func layout(c *cli.Context) (s topology.Sizes, err error) {
	s = topology.Sizes{TP: c.Int("tensor-model-parallel-size"), CP: c.Int("context-parallel-size"), PP: c.Int("pipeline-model-parallel-size"), EP: 1, DP: 1, PPBeforeDP: c.Bool("use-tp-pp-dp-mapping")}
	world, most := c.Int("world-size"), 1<<20
	if min(s.TP, s.CP, s.PP, world) < 1 || max(s.TP, s.CP, s.PP, world) > most || world%(s.TP*s.CP*s.PP) != 0 {
		return s, exitcode.Errorf(exitcode.Usage, "--world-size %d is not a multiple of the ranks of one copy of the model (tensor %d x context %d x pipeline %d); use another --world-size", world, s.TP, s.CP, s.PP)
	}
	if kind := c.String("dataloader-type"); kind != "single" && kind != "cyclic" {
		return s, argv.WrongChoice("dataloader-type", kind, "single", "cyclic")
	}
	s.DP = world / (s.TP * s.CP * s.PP)
	micro, global := c.Int("micro-batch-size"), globalBatch(c, s)
	if round := int64(micro) * int64(s.DP); micro < 1 || micro > most || global < round || global%round != 0 {
		return s, exitcode.Errorf(exitcode.Usage, "--global-batch-size %d is not a multiple of --micro-batch-size %d times %d data-parallel ranks", global, micro, s.DP)
	}
	return s, exitcode.With(exitcode.Usage, s.Check())
}

func globalBatch(c *cli.Context, s topology.Sizes) int64 {
	if !c.IsSet("global-batch-size") {
		return int64(c.Int("micro-batch-size")) * int64(s.DP)
	}
	return int64(c.Int("global-batch-size"))
}
