package bench

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/config"
	"monotron/megatron/engine"
	"monotron/megatron/spec"
	"monotron/megatron/telemetry"
	"monotron/mpu"
	"monotron/mpu/comm"
	"monotron/mpu/ranks"
	"monotron/mpu/topology"
	"monotron/tools/internal/command"
	"monotron/tools/internal/timing"
)

// exchanges are measured in this order, after one rank.
var exchanges = []config.Layout{
	{CP: 2, CPCommType: []string{string(mpu.Ring)}}, {CP: 2, CPCommType: []string{string(mpu.GatherKeys)}}, {CP: 2, CPCommType: []string{string(mpu.ExchangeHeads)}},
	{CP: 4, CPCommType: []string{string(mpu.Ring)}}, {CP: 4, CPCommType: []string{string(mpu.GatherKeys)}}, {CP: 4, CPCommType: []string{string(mpu.ExchangeHeads)}},
	{CP: 4, CPCommType: []string{string(mpu.HeadsInsideRing)}, HierarchicalCP: []int{2, 2}},
}

// exchangeTime is the step of one exchange.
type exchangeTime struct {
	Exchange string  `json:"exchange"`
	Ranks    int     `json:"ranks"`
	Seconds  float64 `json:"step_seconds"` // the fastest
	Ratio    float64 `json:"of_one_rank"`
	Waits    float64 `json:"waits"` // share of a rank's steps that waits for other ranks' keys, the largest
	Sent     int64   `json:"sent_bytes"`
	Formula  int64   `json:"formula_bytes"` // docs/context-parallel.md
	Bytes    int64   `json:"largest_rank_bytes"`
}

// contextLayers is how many layers of the model are measured: results are per layer.
const contextLayers = 1

// fewWords is a vocabulary so small that its head costs nothing next to attention.
const fewWords = 512

func contextFlags() []cli.Flag {
	return []cli.Flag{
		command.Between(1, command.Sizes, &cli.IntFlag{Name: "heads", Usage: "bench contexts: use only N heads of the model, and reduce the width of the model in proportion (default: all)"}),
		&cli.StringFlag{Name: "only", Usage: "bench contexts: time only the run on one rank, and the exchanges whose names contain this text, as in \"cp2 p2p\" (default: all)"},
	}
}

// narrow leaves so many heads of a model, and as much of its width.
func narrow(m *spec.Model, heads int) error {
	if heads < 1 || heads > m.NumAttentionHeads || m.NumAttentionHeads%heads != 0 {
		return exitcode.Errorf(exitcode.Usage, "--heads %d must divide the %d heads of the model", heads, m.NumAttentionHeads)
	}
	parts := m.NumAttentionHeads / heads
	m.NumAttentionHeads, m.HiddenSize, m.FFNHiddenSize, m.NumQueryGroups = heads, m.HiddenSize/parts, m.FFNHiddenSize/parts, max(1, m.NumQueryGroups/parts)
	return nil
}

// benchContexts times a step of one layer of the model on one sequence, shared by the ranks
// of this process in every way, and counts what a rank sends for its attention.
func benchContexts(c *cli.Context, open func(string) (*device.Device, error)) error {
	o, err := readOptions(c)
	if err != nil {
		return err
	}
	// One layer and one sequence: what is timed is the exchange.
	o.batch, o.model.NumLayers, o.model.VocabSize = 1, contextLayers, fewWords
	if c.IsSet("heads") {
		if err := narrow(&o.model, c.Int("heads")); err != nil {
			return err
		}
	}
	if o.steps == 0 {
		o.steps = 1 + layoutSteps
	}
	notes, out := &command.Printer{W: c.App.ErrWriter}, &command.Printer{W: c.App.Writer}
	chosen, err := chosenExchanges(o, c.String("only"), notes)
	if err != nil {
		return err
	}
	// Every way of exchanging, the first of which is one rank.
	var times []exchangeTime
	for _, l := range chosen {
		notes.Printf("%s\n", nameOf(l))
		t, err := timeExchange(l, o, func() (*device.Device, error) { return open(c.String("device")) })
		if err != nil {
			return fmt.Errorf("%s: %w", nameOf(l), err)
		}
		times = append(times, t)
	}
	for i := range times {
		times[i].Ratio = times[i].Seconds / times[0].Seconds
	}
	if c.Bool("json") {
		out.JSON(times)
		return out.Err
	}
	out.Printf("%d layer of %s, %d heads of %d, %s, one sequence of %d positions\n", contextLayers, o.name, o.model.NumAttentionHeads, o.model.KVChannels, o.precision, o.seq)
	out.Printf("%-16s %6s %10s %8s %7s %12s %12s %14s\n", "exchange", "ranks", "seconds", "of one", "waits", "rank sends", "by formula", "largest rank")
	for _, t := range times {
		out.Printf("%-16s %6d %10.3f %8.3f %6.1f%% %8.2f MiB %8.2f MiB %10.0f MiB\n", t.Exchange, t.Ranks, t.Seconds, t.Ratio, 100*t.Waits, mebi(t.Sent), mebi(t.Formula), mebi(t.Bytes))
	}
	return out.Err
}

// chosenExchanges are one rank and the exchanges whose name contains only: refused before anything is
// timed where only names none, or where a sequence cannot be cut for one of them.
func chosenExchanges(o options, only string, notes *command.Printer) ([]config.Layout, error) {
	var chosen []config.Layout
	named := false
	for _, l := range slices.Concat([]config.Layout{{CP: 1}}, exchanges) {
		l.WorldSize, l.VP = l.CP, 1
		if l.CP > 1 && !strings.Contains(nameOf(l), only) {
			continue
		}
		named = named || l.CP > 1
		if o.seq%(2*l.CP) != 0 {
			return nil, exitcode.Errorf(exitcode.Usage, "--seq-length %d is not a multiple of %d, twice the number of ranks that share the sequence", o.seq, 2*l.CP)
		}
		if len(l.CPCommType) > 0 && headsOf(l) > 1 && o.model.NumQueryGroups%headsOf(l) != 0 {
			notes.Printf("%s: left out, %d query groups are not a multiple of %d\n", nameOf(l), o.model.NumQueryGroups, headsOf(l))
			continue
		}
		chosen = append(chosen, l)
	}
	if !named {
		var names []string
		for _, l := range exchanges {
			names = append(names, nameOf(l))
		}
		return nil, exitcode.Errorf(exitcode.Usage, "bench contexts --only %q: no name of an exchange contains this text; choose from %s", only, strings.Join(names, ", "))
	}
	return chosen, nil
}

func mebi(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// headsOf is how many ranks exchange heads.
func headsOf(l config.Layout) int {
	switch mpu.ContextKind(l.CPCommType[0]) {
	case mpu.ExchangeHeads:
		return l.CP
	case mpu.HeadsInsideRing:
		return l.HierarchicalCP[0]
	}
	return 1
}

func nameOf(l config.Layout) string {
	if l.CP == 1 {
		return "one rank"
	}
	return fmt.Sprintf("cp%d %s", l.CP, l.CPCommType[0])
}

// timeExchange trains a few steps under l: the fastest counts. Waits are of all steps but the
// first, which makes what others find: a single step's are chance.
func timeExchange(l config.Layout, o options, open func() (*device.Device, error)) (exchangeTime, error) {
	config := timing.Config(o.shape())
	config.Layout, config.MicroBatchSize, config.GlobalBatchSize = l, 1, 1
	if err := config.SetVocab(o.model.VocabSize); err != nil {
		return exchangeTime{}, err
	}
	t := exchangeTime{Exchange: nameOf(l), Ranks: l.CP, Seconds: -1, Formula: sentBytes(l, o, config.DType())}
	largest, waits, own, sent := make([]int64, l.CP), make([]float64, l.CP), make([]float64, l.CP), make([]int64, l.CP)
	err := ranks.Run(engine.Ranks(&config.Step, open), func(r *ranks.Rank) error {
		// What the group sends is counted.
		if g := r.Groups[topology.CP]; g != nil {
			r.Groups[topology.CP] = g.Over(func(e comm.Engine) comm.Engine { return sender{e, int64(l.CP), &sent[r.Number]} })
		}
		e, err := engineOf(r, config)
		if err != nil {
			return err
		}
		e.Timers = telemetry.NewTimers(telemetry.LevelMicro)
		batch := layoutBatch(o, 0, 1)
		// Steps begin and end together; rank 0 keeps the fastest.
		for step := range o.steps {
			if err := r.World().Barrier(); err != nil {
				return err
			}
			sent[r.Number] = 0
			e.Timers.Take([]string{"context-exchange"})
			began := time.Now()
			if _, err := e.Step(batch); err != nil {
				return err
			}
			if step > 0 || o.steps == 1 {
				own[r.Number] += time.Since(began).Seconds()
				waits[r.Number] += e.Timers.Elapsed("context-exchange").Seconds()
			}
			if err := r.World().Barrier(); err != nil {
				return err
			}
			if took := time.Since(began).Seconds(); r.First() && (t.Seconds < 0 || took < t.Seconds) {
				t.Seconds = took
			}
		}
		largest[r.Number] = r.Device.Arena.Usage().Max
		return nil
	})
	// The rank that waits most, sends most, holds most.
	for rank := range own {
		t.Waits = max(t.Waits, waits[rank]/own[rank])
	}
	t.Bytes, t.Sent = slices.Max(largest), slices.Max(sent)
	return t, err
}

// sentBytes is what a rank sends for attention in a step of one sequence.
func sentBytes(l config.Layout, o options, value device.DType) int64 {
	if l.CP == 1 {
		return 0
	}
	m, cp, heads := &o.model, int64(l.CP), int64(headsOf(l))
	n, rows := int64(o.seq)/cp, cp/heads
	keys, grads, queries := 2*int64(m.NumQueryGroups*m.KVChannels)*value.Size(), 2*int64(m.NumQueryGroups*m.KVChannels)*device.F32.Size(), int64(m.NumAttentionHeads*m.KVChannels)*value.Size()
	each := 2 * (heads - 1) * n * (keys + 2*queries) / heads
	switch {
	case mpu.ContextKind(l.CPCommType[0]) == mpu.GatherKeys:
		each += (cp - 1) * n * (2*keys + grads)
	case rows > 1:
		each += (rows-1)*n*2*keys + rows*n*grads
	}
	return each * contextLayers
}

// sender adds up what a rank sends.
type sender struct {
	comm.Engine
	ranks int64
	sent  *int64
}

func (s sender) Start(c *comm.Collective) comm.Work {
	switch c.Op {
	case comm.AllGather:
		*s.sent += (s.ranks - 1) * c.In.Bytes()
	case comm.ReduceScatter:
		*s.sent += (s.ranks - 1) * c.Out.Bytes()
	case comm.Exchange:
		for _, t := range c.Transfers {
			if t.Send {
				*s.sent += t.T.Bytes()
			}
		}
	}
	return s.Engine.Start(c)
}
