package plan

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"monotron/internal/exitcode"
	"monotron/megatron/arguments"
	"monotron/megatron/arguments/table"
	"monotron/megatron/config"
	"monotron/megatron/plan"
	"monotron/tools/internal/command"
)

func tableCommand() *cli.Command {
	return command.WrapOpen(&cli.Command{
		Name:      "table",
		Usage:     "compute seconds and memory of many layouts, one per row",
		ArgsUsage: "LAYOUTS.csv",
		Description: "Columns are hidden, layers, heads, dp, tp, pp, cp, vp, micro_batch, global_batch, nodes, regime, or flags of pretrain_gpt; other columns are copied. " +
			"Prints the rows with predicted_seconds, predicted_memory_gb and fits. With --fit the machine's three constants are fitted, one set per regime, " +
			"to every second row that has the column; the other rows are used as a test.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "machine", Usage: "use this machine file, or one of " + strings.Join(plan.Machines(), ", ")},
			&cli.StringFlag{Name: "fit", Usage: "`COLUMN`: fit the machine's rates to this column of measured seconds per step"},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON object: rows and regimes"},
		},
		Action: planTable,
	})
}

// layouts is a table of runs.
type layouts struct {
	machine *plan.Machine
	header  []string
	rows    []*layout
	notes   io.Writer
}

// layout is a row.
type layout struct {
	line     int
	cells    map[string]string
	regime   string
	config   config.Run
	clock    *plan.Clock
	measured float64 // 0: not given
	seconds  *plan.Seconds
	memory   int64 // of the largest rank
	fits     bool
	problem  error // why it cannot be
}

const mostTable = 64 << 20

func planTable(c *cli.Context) error {
	if c.Args().Len() != 1 || c.String("machine") == "" {
		return exitcode.Errorf(exitcode.Usage, "plan table needs one file LAYOUTS.csv and --machine; monotron plan table --help shows an example")
	}
	m, err := plan.ReadMachine(c.String("machine"))
	if err != nil {
		return err
	}
	// A line a layout.
	text, err := exitcode.ReadFile(c.Args().First(), mostTable)
	if err != nil {
		return err
	}
	l := &layouts{machine: m, notes: c.App.ErrWriter}
	if err := l.read(text, c.String("fit")); err != nil {
		return fmt.Errorf("%s: %w", c.Args().First(), err)
	}
	// Memory of each, constants from the rows to fit, times of all.
	for _, r := range l.rows {
		l.count(r)
	}
	regimes := l.fit(c.String("fit"))
	for _, r := range l.rows {
		if r.problem == nil {
			r.seconds, r.problem = r.clock.Run(regimes[r.regime].Constants)
		}
	}
	l.judge(regimes)
	write := l.write
	if c.Bool("json") {
		write = l.writeJSON
	}
	if err := write(c.App.Writer, regimes); err != nil {
		return err
	}
	if !slices.ContainsFunc(l.rows, func(r *layout) bool { return r.problem == nil }) {
		return exitcode.Errorf(exitcode.BadData, "%s: none of its %d layouts can be planned; line %d: %w", c.Args().First(), len(l.rows), l.rows[0].line, l.rows[0].problem)
	}
	return nil
}

// read takes the rows apart.
func (l *layouts) read(text []byte, measured string) error {
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff")))) // spreadsheets mark UTF-8 so
	r.ReuseRecord = true
	// Names of columns.
	head, err := r.Read()
	if errors.Is(err, io.EOF) {
		return exitcode.Errorf(exitcode.BadData, "the file is empty; its first line must have the names of columns")
	} else if err != nil {
		return exitcode.Errorf(exitcode.BadData, "the first line, with the names of the columns, is not valid CSV: %w", err)
	}
	l.header = slices.Clone(head)
	for i, name := range l.header {
		if name != "" && slices.Contains(l.header[:i], name) {
			return exitcode.Errorf(exitcode.BadData, "column %s is given twice", name)
		}
	}
	if measured != "" && !slices.Contains(l.header, measured) {
		return exitcode.Errorf(exitcode.Usage, "--fit: column %s does not exist; choose from %s", measured, strings.Join(l.header, ", "))
	}
	for {
		// Rows; a cell that is not a plausible number was not measured.
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return exitcode.With(exitcode.BadData, err)
		}
		line, _ := r.FieldPos(0)
		row := &layout{line: line, cells: map[string]string{}}
		for i, name := range l.header {
			row.cells[name] = strings.TrimSpace(cells[i])
		}
		row.regime = row.cells["regime"]
		if x, err := strconv.ParseFloat(row.cells[measured], 64); measured != "" && err == nil && x > 1e-9 && x < 1e9 {
			row.measured = x
		}
		l.rows = append(l.rows, row)
	}
	if len(l.rows) == 0 {
		return exitcode.Errorf(exitcode.BadData, "the file has column names but no rows")
	}
	return nil
}

// known are columns with names of their own.
var known = map[string]string{"hidden": "hidden-size", "layers": "num-layers", "heads": "num-attention-heads", "tp": "tensor-model-parallel-size", "cp": "context-parallel-size",
	"pp": "pipeline-model-parallel-size", "vp": "num-virtual-stages-per-pipeline-rank", "micro_batch": "micro-batch-size", "global_batch": "global-batch-size"}

// count makes a row's run and counts it.
func (l *layouts) count(r *layout) {
	r.problem = func() error {
		args, err := l.flags(r)
		if err != nil {
			return err
		}
		if r.config, _, err = arguments.ParseWith(arguments.Options{Layouts: true, Experts: true}, args); err != nil {
			return err
		}
		if err := setVocab(&r.config); err != nil {
			return err
		}
		if r.clock, err = plan.NewClock(r.config, l.machine); err != nil {
			return err
		}
		ranks, err := plan.Memory(r.config, plan.Options{Device: l.machine.Device})
		if err != nil {
			return err
		}
		r.memory = plan.Largest(ranks).Peak + r.clock.ProgramMemory(r.regime)
		r.fits = r.memory <= int64(l.machine.Memory) && l.machine.HostHas(&r.config, ranks) && (l.machine.Threads == 0 || l.machine.Has(ranks))
		return nil
	}()
}

// flags is a row as a command line.
func (l *layouts) flags(r *layout) ([]string, error) {
	// Flags of the machine and the regime, then the row's own; sizes make the world.
	lists := [][]string{{"--tokenizer-type", "NullTokenizer", "--mock-data", "--train-iters", "1000", "--lr", "1e-4"}, l.machine.Flags, l.machine.Regimes[r.regime]}
	var own []string
	sizes := map[string]int{"tp": 1, "pp": 1, "cp": 1, "dp": 1, "nodes": 0}
	for name, text := range r.cells {
		if _, is := sizes[name]; is && text != "" {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 || n > 1<<20 {
				return nil, exitcode.Errorf(exitcode.BadData, "%s is %q; it must be a number from 1 to %d", name, text, 1<<20)
			}
			sizes[name] = n
		}
		flag, is := known[name]
		if !is {
			flag = strings.ReplaceAll(name, "_", "-")
		}
		switch f := table.Find(flag); {
		case f == nil || text == "" || text == "false":
		case f.Kind == table.Switch:
			own = append(own, "--"+flag)
		default:
			own = append(own, "--"+flag, text)
		}
	}
	world := sizes["tp"] * sizes["pp"] * sizes["cp"] * sizes["dp"]
	// A table may count nodes: they say how many data-parallel ranks there are.
	if n := sizes["nodes"] * l.machine.PerNode; n > 0 && n != world {
		model := sizes["tp"] * sizes["pp"] * sizes["cp"]
		if n%model != 0 {
			return nil, exitcode.Errorf(exitcode.BadData, "%d nodes of %d devices cannot be divided into copies of the model with %d devices each (tp %d x pp %d x cp %d)", sizes["nodes"], l.machine.PerNode, model, sizes["tp"], sizes["pp"], sizes["cp"])
		}
		fmt.Fprintf(l.notes, "line %d: dp %d x tp %d x pp %d need %d devices, but %d nodes have %d: dp %d is used instead\n", r.line, sizes["dp"], sizes["tp"], sizes["pp"], world, sizes["nodes"], n, n/model)
		world = n
	}
	return joined(append(lists, append(own, "--world-size", strconv.Itoa(world)))), nil
}

// joined are lists of flags as one, a flag of a later list replacing an earlier one's.
func joined(lists [][]string) (all []string) {
	for _, list := range lists {
		for i := 0; i < len(list); {
			end := i + 1
			for end < len(list) && !strings.HasPrefix(list[end], "--") {
				end++
			}
			all = append(without(all, list[i]), list[i:end]...)
			i = end
		}
	}
	return all
}

func without(all []string, flag string) []string {
	from := slices.Index(all, flag)
	if from < 0 {
		return all
	}
	to := from + 1
	for to < len(all) && !strings.HasPrefix(all[to], "--") {
		to++
	}
	return slices.Delete(all, from, to)
}

// predicted are the columns that a row gets.
func (r *layout) predicted() (seconds, memory, fits string) {
	if r.problem != nil {
		return "", "", strings.ReplaceAll(r.problem.Error(), "\n", "; ")
	}
	return strconv.FormatFloat(r.seconds.Step, 'f', 2, 64), strconv.FormatFloat(float64(r.memory)/(1<<30), 'f', 1, 64), strconv.FormatBool(r.fits)
}

func (l *layouts) write(w io.Writer, regimes map[string]*regime) error {
	out := csv.NewWriter(w)
	err := out.Write(append(slices.Clone(l.header), "predicted_seconds", "predicted_memory_gb", "fits"))
	// The row as it was, and what is predicted.
	for _, r := range l.rows {
		var cells []string
		for _, name := range l.header {
			cells = append(cells, r.cells[name])
		}
		seconds, memory, fits := r.predicted()
		err = errors.Join(err, out.Write(append(cells, seconds, memory, fits)))
	}
	out.Flush()
	if err = errors.Join(err, out.Error()); err != nil {
		return exitcode.With(exitcode.IO, err)
	}
	// How good the predictions are, by regime.
	for _, name := range sorted(regimes) {
		g := regimes[name]
		if g.MemoryRows+g.Lost > 0 {
			fmt.Fprintf(l.notes, "%s: memory of %d rows: mean error %.1f%%, worst %.1f%%; of %d rows that ran out of memory, %d are predicted to run out of memory or to come within 5%% of it\n",
				g.Name, g.MemoryRows, 100*g.MemoryMean, 100*g.MemoryWorst, g.Lost, g.LostSeen)
		}
		if g.Judged > 0 {
			fmt.Fprintf(l.notes, "%s: constants compute %.3f, move %.3f, between %.3f, fitted to %d rows; on the other %d rows, mean error %.1f%%, worst %.1f%%; rank correlation %.3f\n",
				g.Name, g.Constants.Compute, g.Constants.Move, g.Constants.Between, g.Fitted, g.Judged, 100*g.Mean, 100*g.Worst, g.Rank)
		}
	}
	return nil
}

func (l *layouts) writeJSON(w io.Writer, regimes map[string]*regime) error {
	var out struct {
		Rows    []map[string]any `json:"rows"`
		Regimes []*regime        `json:"regimes"`
	}
	for _, r := range l.rows {
		row := map[string]any{}
		for name, text := range r.cells {
			row[name] = text
		}
		if r.problem != nil {
			row["problem"] = r.problem.Error()
		} else {
			row["predicted_seconds"], row["predicted_memory_gb"], row["fits"] = r.seconds.Step, float64(r.memory)/(1<<30), r.fits
		}
		out.Rows = append(out.Rows, row)
	}
	for _, name := range sorted(regimes) {
		out.Regimes = append(out.Regimes, regimes[name])
	}
	return exitcode.With(exitcode.IO, json.NewEncoder(w).Encode(out))
}
