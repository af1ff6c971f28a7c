package modelcase

import (
	"encoding/json"
	"fmt"

	"monotron/internal/exitcode"
	"monotron/megatron/arguments"
	"monotron/megatron/config"
	"monotron/megatron/optimizer"
)

// rows decodes the table's rows and hands over each that is wanted, by number.
func rows[T any](r *run, each func(name string, row T) error) error {
	for i, raw := range r.Rows {
		name := fmt.Sprint("row ", i)
		if !r.wanted(fmt.Sprint(i)) {
			continue
		}
		var row T
		if err := json.Unmarshal(raw, &row); err != nil {
			return r.bad("%s: %v", name, err)
		}
		if err := each(name, row); err != nil {
			return fmt.Errorf("%s, %s: %w", r.report.Case, name, err)
		}
	}
	return nil
}

type scheduleRow struct {
	Flags   string
	LR      []float64
	Decay   []float64 `json:"weight_decay"`
	Skipped []int     `json:"skipped_iterations"` // 1-based
	Samples struct {
		Warmup   float64
		Decay    int64
		WSD      *int64 `json:"wsd_decay"`
		Increase int64  `json:"wd_increase"`
	} `json:"in_samples"`
}

// runSchedules: learning rate and weight decay of every iteration.
func (r *run) runSchedules() error {
	limit, err := r.tolerance("relative")
	if err != nil {
		return err
	}
	return rows(r, func(name string, row scheduleRow) error {
		config, err := r.parse(words(row.Flags))
		if err != nil {
			return err
		}
		s, err := config.Optimizer.Schedule(config.TrainIters, config.TrainSamples, config.GlobalBatchSize)
		if err != nil {
			return err
		}
		r.report.relative("lengths", name+" warm-up samples", s.WarmupSamples, row.Samples.Warmup, limit)
		r.report.exact("lengths", name+" decay samples", s.DecaySamples, row.Samples.Decay)
		r.report.exact("lengths", name+" weight decay samples", s.WDSamples, row.Samples.Increase)
		if row.Samples.WSD != nil {
			r.report.exact("lengths", name+" WSD samples", s.WSDSamples, *row.Samples.WSD)
		}
		return r.walk(name, s, row, config.GlobalBatchSize, limit)
	})
}

func (r *run) walk(name string, s optimizer.Schedule, row scheduleRow, batch int, limit float64) error {
	if len(row.LR) != len(row.Decay) {
		return r.bad("%s: there are %d learning rates, but %d weight decays", name, len(row.LR), len(row.Decay))
	}
	skipped := map[int]bool{}
	for _, i := range row.Skipped {
		skipped[i] = true
	}
	p := optimizer.NewParamScheduler(s)
	for i := range row.LR {
		what := fmt.Sprintf("%s iteration %d", name, i+1)
		r.report.relative("learning rate", what, p.LR(), row.LR[i], limit)
		r.report.relative("weight decay", what, p.WeightDecay(), row.Decay[i], limit)
		if !skipped[i+1] {
			p.Step(batch)
		}
	}
	return nil
}

type scaleRow struct {
	Flags    string
	Overflow string
	After    [][3]float64 `json:"scale_growth_hysteresis_after"`
}

// runLossScale: the dynamic loss scale over a given history of overflows.
func (r *run) runLossScale() error {
	return rows(r, func(name string, row scaleRow) error {
		flags, err := r.parse(words(row.Flags))
		if err != nil {
			return err
		}
		if len(row.Overflow) != len(row.After) {
			return r.bad("%s: there are %d iterations, but %d states of the loss scale", name, len(row.Overflow), len(row.After))
		}
		s := optimizer.NewScaler(&flags.Optimizer, flags.Precision == config.FP16)
		for i, want := range row.After {
			s.Update(row.Overflow[i] == '1')
			st := s.State()
			r.report.exact("loss scale", fmt.Sprintf("%s iteration %d", name, i+1), [3]float64{st.Value, float64(st.Growth), float64(st.Hysteresis)}, want)
		}
		return nil
	})
}

type batchRow struct {
	Flags      string
	DP         int `json:"data_parallel_size"`
	Iterations []json.RawMessage
}

// runBatchSize: global batch size and micro-batches of every iteration.
func (r *run) runBatchSize() error {
	return rows(r, func(name string, row batchRow) error {
		line := append(words(row.Flags), "--world-size", fmt.Sprint(row.DP))
		run, _, err := arguments.ParseWith(arguments.Options{Partial: true, Layouts: true}, line)
		var sizes *config.BatchSizes
		if err == nil {
			sizes, err = config.NewBatchSizes(&run, row.DP)
		}
		for _, raw := range row.Iterations {
			if err := r.batchAt(name, sizes, err, raw); err != nil {
				return err
			}
		}
		return nil
	})
}

// batchAt compares one iteration: [consumed, global, running, micro-batches], or
// [consumed, global, "error: .."] where the size is refused. Ours refuses a complete
// ramp before it begins: that is early.
func (r *run) batchAt(name string, sizes *config.BatchSizes, early error, raw json.RawMessage) error {
	var parts []any
	if err := json.Unmarshal(raw, &parts); err != nil || len(parts) < 3 {
		return r.bad("%s: %s must be a list of at least three values, which describes an iteration", name, raw)
	}
	consumed, ok := parts[0].(float64)
	if !ok {
		return r.bad("%s: %s must begin with the number of consumed samples", name, raw)
	}
	what := fmt.Sprintf("%s after %.0f samples", name, consumed)
	var now config.BatchSize
	err := early
	if err == nil {
		now, err = sizes.At(int(consumed))
	}
	if _, refused := parts[2].(string); refused {
		r.report.exact("refused", what, exitcode.CodeOf(err), exitcode.Usage)
		return nil
	}
	if err != nil {
		return err
	}
	r.report.exact("batch size", what, []any{float64(now.Global), float64(now.Running), float64(now.Micros)}, parts[1:])
	return nil
}
