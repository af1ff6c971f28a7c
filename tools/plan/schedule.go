package plan

import (
	"encoding/json"
	"fmt"

	"github.com/urfave/cli/v2"

	"monotron/internal/atomicfile"
	"monotron/internal/exitcode"
	"monotron/megatron/schedule"
	"monotron/tools/internal/command"
	"monotron/tools/plan/timeline"
)

// most is how many forwards of a chunk a drawn schedule may have: a picture of
// more shows nothing.
const most = 1 << 18

func scheduleCommand() *cli.Command {
	return command.Wrap(&cli.Command{
		Name:  "schedule",
		Usage: "draw the timeline of each pipeline stage",
		Description: "Simulates the schedule that a training run with the same flags executes, with the same checks: " +
			"a transfer starts when both stages have reached it. With --num-layers the model is divided among stages as in training.",
		Flags: []cli.Flag{
			// The schedule.
			command.Between(1, most, &cli.IntFlag{Name: "pipeline-model-parallel-size", Value: 4, Usage: "divide the layers into N pipeline stages"}),
			command.Between(0, most, &cli.IntFlag{Name: "num-virtual-stages-per-pipeline-rank", Usage: "divide a stage into N model chunks (interleaved schedule)"}),
			command.Between(0, 100000, &cli.IntFlag{Name: "num-layers-per-virtual-pipeline-stage", Usage: "put N layers into each model chunk (interleaved schedule)"}),
			command.Between(1, most, &cli.IntFlag{Name: "micro-batches", Value: 8, Usage: "draw N micro-batches per step; in a run, N is --global-batch-size / --micro-batch-size / data-parallel size"}),
			command.Between(0, 100000, &cli.IntFlag{Name: "microbatch-group-size-per-virtual-pipeline-stage", Usage: "let a chunk process N micro-batches before the next chunk begins (default: the number of stages)"}),
			&cli.StringFlag{Name: "pipeline-schedule", Value: schedule.OneFOneBName, Usage: "choose the schedule: 1f1b or gpipe"},
			&cli.BoolFlag{Name: "no-overlap-p2p-communication", Usage: "with an interleaved schedule: complete each exchange before the next forward or backward pass"},
			&cli.BoolFlag{Name: "forward-only", Usage: "show an evaluation, which has no backward passes"},

			// How layers are divided among stages.
			command.Between(0, 100000, &cli.IntFlag{Name: "num-layers", Usage: "set the number of layers of the model (default: every chunk has equal work)"}),
			&cli.StringFlag{Name: "pipeline-model-parallel-layout", Usage: "`LAYOUT`: set the layers of each stage, as in 'Ettt|(tt|)*2L'"},
			&cli.StringFlag{Name: "pp-partition-method", Usage: "use Megatron-DeepSpeed's method to divide layers among stages, as in 'type:transformer|embedding'"},
			command.Between(0, 100000, &cli.IntFlag{Name: "decoder-first-pipeline-num-layers", Usage: "set the number of layers of the first stage"}),
			command.Between(0, 100000, &cli.IntFlag{Name: "decoder-last-pipeline-num-layers", Usage: "set the number of layers of the last stage"}),
			&cli.BoolFlag{Name: "account-for-embedding-in-pipeline-split", Usage: "count the embedding as a layer"},
			&cli.BoolFlag{Name: "account-for-loss-in-pipeline-split", Usage: "count the output layer as a layer"},

			// What work and transfers take.
			command.Between(0, 1e9, &cli.Float64Flag{Name: "forward-ms", Value: 10, Usage: "set the mean milliseconds of the forward pass of a micro-batch through a stage"}),
			command.Between(0, 1e9, &cli.Float64Flag{Name: "backward-ms", Value: 20, Usage: "set the mean milliseconds of the backward pass of a micro-batch through a stage"}),
			command.Between(0, 1e9, &cli.Float64Flag{Name: "transfer-ms", Usage: "set the milliseconds to send an activation or gradient from one stage to the next"}),
			command.Between(0, 1e9, &cli.Float64Flag{Name: "embedding-work", Usage: "with --num-layers: count the work of the embedding as this many layers"}),
			command.Between(0, 1e9, &cli.Float64Flag{Name: "head-work", Usage: "with --num-layers: count the work of output layer and loss as this many layers"}),

			// The work of context-parallel ranks.
			command.Between(1, mostRanks, &cli.IntFlag{Name: "context-parallel-size", Value: 1, Usage: "share each sequence among N ranks, and show the work of each rank in every step of the ring"}),
			command.Between(1, mostTokens, &cli.IntFlag{Name: "seq-length", Value: 8192, Usage: "with --context-parallel-size: set the number of tokens per sequence"}),

			// Output.
			&cli.StringFlag{Name: "svg", Usage: "write the picture to this file"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object, with the times of every forward and backward pass"},
			&cli.BoolFlag{Name: "actions", Usage: "print every stage's list of actions, including exchanges"},
		},
		Action: runSchedule,
	})
}

func runSchedule(c *cli.Context) error {
	if err := command.NoArgs(c); err != nil {
		return err
	}
	p, err := planOf(c)
	if err != nil {
		return err
	}
	// The picture goes to a file, everything else to standard output.
	if path := c.String("svg"); path != "" {
		if err := atomicfile.WriteFile(path, 0o666, p.chart.SVG()); err != nil {
			return err
		}
	}
	out := &command.Printer{W: c.App.Writer}
	switch {
	case c.Bool("json"):
		return p.writeJSON(c)
	case c.Bool("actions"):
		for stage := range p.config.Stages {
			out.Printf("stage %d\n", stage)
			for _, a := range p.config.Actions(stage) {
				out.Printf("  %v\n", a)
			}
		}
	default:
		out.Printf("%s", p.chart.Text(100))
		p.ring.print(out)
	}
	return out.Err
}

// schedulePlan is a schedule with its times.
type schedulePlan struct {
	config schedule.Config
	parts  [][]schedule.Part // nil: not asked for
	chart  timeline.Chart
	ring   ring
}

func planOf(c *cli.Context) (p schedulePlan, err error) {
	p.config = schedule.Config{Name: c.String("pipeline-schedule"), Stages: c.Int("pipeline-model-parallel-size"), Chunks: max(1, c.Int("num-virtual-stages-per-pipeline-rank")),
		Micros: c.Int("micro-batches"), Group: c.Int("microbatch-group-size-per-virtual-pipeline-stage"), ForwardOnly: c.Bool("forward-only"), NoOverlap: c.Bool("no-overlap-p2p-communication")}
	if err := p.cut(c); err != nil {
		return p, err
	}
	if p.ring, err = ringOf(c); err != nil {
		return p, err
	}
	s := &p.config
	if n := float64(s.Stages) * float64(s.Chunks) * float64(s.Micros); n > most {
		return p, exitcode.Errorf(exitcode.Usage, "%d stages of %d chunks with %d micro-batches have %.0f forward passes, but only %d can be drawn; lower --micro-batches", s.Stages, s.Chunks, s.Micros, n, most)
	}
	if err := s.Check(); err != nil {
		return p, err
	}
	line, err := schedule.Simulate(*s, p.times(c))
	if err != nil {
		return p, err
	}
	p.config = line.Config
	p.chart = timeline.Chart{Line: line, Parts: p.parts}
	return p, nil
}

// cutFlags mean something only for a model with layers.
var cutFlags = []string{"num-layers-per-virtual-pipeline-stage", "pipeline-model-parallel-layout", "pp-partition-method", "decoder-first-pipeline-num-layers",
	"decoder-last-pipeline-num-layers", "account-for-embedding-in-pipeline-split", "account-for-loss-in-pipeline-split", "embedding-work", "head-work"}

// cut gives every chunk its layers, where the model's are given.
func (p *schedulePlan) cut(c *cli.Context) (err error) {
	if !c.IsSet("num-layers") {
		for _, name := range cutFlags {
			if c.IsSet(name) {
				return exitcode.Errorf(exitcode.Usage, "--%s needs --num-layers, the number of layers of the model", name)
			}
		}
		return nil
	}
	p.parts, err = schedule.Split{Layers: c.Int("num-layers"), Stages: p.config.Stages,
		VirtualStages: c.Int("num-virtual-stages-per-pipeline-rank"), LayersPerChunk: c.Int("num-layers-per-virtual-pipeline-stage"),
		First: c.Int("decoder-first-pipeline-num-layers"), Last: c.Int("decoder-last-pipeline-num-layers"),
		EmbeddingCounts: c.Bool("account-for-embedding-in-pipeline-split"), HeadCounts: c.Bool("account-for-loss-in-pipeline-split"),
		Layout: c.String("pipeline-model-parallel-layout"), Method: c.String("pp-partition-method")}.Parts()
	if err != nil {
		return exitcode.With(exitcode.Usage, err)
	}
	p.config.Chunks = len(p.parts[0])
	return nil
}

// times shares the seconds of a mean stage out by the work of each chunk.
func (p *schedulePlan) times(c *cli.Context) schedule.Times {
	forward, backward := c.Float64("forward-ms")/1e3, c.Float64("backward-ms")/1e3
	t := schedule.Even(p.config, forward, backward, c.Float64("transfer-ms")/1e3)
	if p.parts == nil {
		return t
	}
	embedding, head := c.Float64("embedding-work"), c.Float64("head-work")
	work := func(part schedule.Part) float64 {
		units := float64(len(part.Layers))
		if part.Embedding {
			units += embedding
		}
		if part.Head {
			units += head
		}
		return units
	}
	mean := (float64(c.Int("num-layers")) + embedding + head) / float64(p.config.Stages)
	for stage, chunks := range p.parts {
		for i, part := range chunks {
			share := work(part) / mean
			t.Forward[stage][i], t.Backward[stage][i] = forward*share, backward*share
		}
	}
	return t
}

// The report of --json. Times are in milliseconds.
type scheduleReport struct {
	Schedule      string        `json:"schedule"`
	Stages        int           `json:"stages"`
	Chunks        int           `json:"chunks"`
	Micros        int           `json:"micro_batches"`
	Group         int           `json:"group"`
	ForwardOnly   bool          `json:"forward_only"`
	Step          float64       `json:"step_ms"`
	Bubble        float64       `json:"bubble"`         // idle over busy time
	FormulaBubble float64       `json:"bubble_formula"` // of equal stages
	PerStage      []stageReport `json:"per_stage"`
	// [rank][step]: queries times keys under the causal mask, where sequences are shared.
	Ring ring `json:"ring_pairs,omitempty"`
}

type stageReport struct {
	Busy  float64      `json:"busy_ms"`
	Idle  float64      `json:"idle_ms"`
	Live  int          `json:"live"` // most (chunk, micro-batch) alive at once
	Holds []partReport `json:"holds,omitempty"`
	Runs  []runReport  `json:"runs"`
}

type partReport struct {
	Embedding bool  `json:"embedding"`
	Layers    []int `json:"layers"`
	Head      bool  `json:"head"`
}

type runReport struct {
	Kind  string  `json:"kind"` // F, B
	Chunk int     `json:"chunk"`
	Micro int     `json:"micro_batch"`
	From  float64 `json:"from_ms"`
	To    float64 `json:"to_ms"`
}

func (p *schedulePlan) writeJSON(c *cli.Context) error {
	line, s := p.chart.Line, p.config
	r := scheduleReport{Schedule: s.Name, Stages: s.Stages, Chunks: s.Chunks, Micros: s.Micros, Group: s.Group, ForwardOnly: s.ForwardOnly,
		Step: line.End * 1e3, Bubble: line.Bubble(), FormulaBubble: s.BubbleFraction(), Ring: p.ring}
	for stage, spans := range line.Spans {
		one := stageReport{Busy: line.Busy(stage) * 1e3, Idle: line.Idle(stage) * 1e3, Live: line.Live[stage]}
		if p.parts != nil {
			for _, part := range p.parts[stage] {
				one.Holds = append(one.Holds, partReport{part.Embedding, part.Layers, part.Head})
			}
		}
		for _, span := range spans {
			one.Runs = append(one.Runs, runReport{fmt.Sprint(span.Kind), span.Chunk, span.Micro, span.From * 1e3, span.To * 1e3})
		}
		r.PerStage = append(r.PerStage, one)
	}
	return exitcode.With(exitcode.IO, json.NewEncoder(c.App.Writer).Encode(r))
}
