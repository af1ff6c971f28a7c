package training

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"monotron/csrc/device"
	"monotron/megatron/schedule"
	"monotron/megatron/telemetry"
)

// progress is how far the run is: what steps and evaluations have in common.
func (l *logger) progress(r *Run) *telemetry.Step {
	return &telemetry.Step{Time: time.Now(), Iteration: int(r.Engine.Iteration), TrainIters: int(r.iters), ConsumedSamples: r.at.ConsumedTrain,
		ConsumedTokens: r.at.ConsumedTrain * int64(l.sampleTokens())}
}

// record is the record of one iteration.
func (l *logger) record(r *Run, done stepLog) (*telemetry.Step, error) {
	// Losses.
	took := time.Since(done.started)
	s, result := l.progress(r), &done.result
	s.Losses = []telemetry.Value{{Name: "lm loss", Value: result.Loss}}
	for i, loss := range result.Ahead {
		s.Losses = append(s.Losses, telemetry.Value{Name: fmt.Sprintf("mtp_%d loss", i+1), Value: loss})
	}
	// Samples, rates, and the rates of the next step, which Megatron's curves show.
	s.SkippedSamples, s.GlobalBatchSize = r.at.SkippedTrain, done.batch.Running
	s.Tokens = done.batch.Running * l.sampleTokens()
	s.LearningRate, s.WeightDecay, s.LossScale, s.Skipped = result.LR, result.Decay, result.Scale, result.Update.Skipped
	s.NextLearningRate, s.NextLossScale = r.Engine.Scheduler.LR(), r.Engine.Scaler.Scale()
	// Times, ranks, memory.
	s.Elapsed, s.Data, s.Forward, s.Backward, s.Update = took, done.data, result.Forward, result.Backward, result.UpdateFor
	s.Ranks, s.FLOPs, s.Memory = l.rank.Sizes.World(), l.flops(done), memoryOf(r.device)
	s.Memory.Planned = r.Planned[l.rank.Number].Most
	s.Peak = r.peak.believed() / r.sharers()
	// What only some runs have.
	s.MoE, s.MoELayers = l.mixtures(result.Mixtures, s.Tokens)
	if !s.Skipped {
		s.GradNorm = &result.Update.GradNorm
	}
	if mtp := l.config.Model.MTP; mtp != nil && mtp.DetachHeads && !s.Skipped {
		s.MTPGradNorm = &result.Update.OwnNorm
	}
	if l.config.Log.NumZeros && !s.Skipped {
		zeros := float64(result.Update.Zeros)
		s.NumZeros = &zeros
	}
	if r.objective != nil {
		var err error
		if s.Preference, err = r.objective.values(r); err != nil {
			return nil, err
		}
	}
	if due(r.Engine.Iteration, l.config.Log.WeightsHash) {
		hash, err := r.weightsHash()
		if err != nil {
			return nil, err
		}
		s.WeightsHash = hash
	}
	if !l.config.Log.ParamsNorm {
		return s, nil
	}
	norm, err := r.Engine.Optimizer.ParamsNorm()
	s.ParamsNorm = &norm
	return s, err
}

// sampleTokens is how many tokens a sample has.
func (l *logger) sampleTokens() int { return l.config.SeqLength * l.config.Tuning.Sequences() }

// flops is what one rank computes of an iteration.
func (l *logger) flops(done stepLog) float64 {
	return l.config.Model.FLOPs(done.batch.Running*l.config.Tuning.Sequences(), l.config.SeqLength) / float64(l.rank.Sizes.World())
}

// interval is further values of a log line. With an error it has what could be gathered.
func (l *logger) interval(r *Run, done stepLog) (*telemetry.Interval, error) {
	i := &telemetry.Interval{Iterations: l.iterations, Purposes: purposes(r.device.Arena.Usage().Peak), PlannedPurposes: purposes(r.Planned[l.rank.Number].ByPurpose)}
	return i, errors.Join(l.memory(r, i), l.timing(r, i), l.stages(r, done, i))
}

// memory is logged after the first two steps, as by Megatron, and at --log-memory-interval.
func (l *logger) memory(r *Run, i *telemetry.Interval) (err error) {
	if l.memoryReported && !due(r.Engine.Iteration, l.config.Log.MemoryInterval) {
		return nil
	}
	if refused := r.device.Refused(); refused != "" && r.Engine.Iteration > 1 && !l.memoryReported {
		l.note("rank %d: %s refused matrix products, which monotron's kernels compute instead: %s", l.rank.Number, r.device.Products(), refused)
	}
	l.memoryReported = r.Engine.Iteration > 1
	if planned := r.Planned[l.rank.Number].Most; planned > 0 && l.memoryReported {
		l.note("rank %d: the peak memory of tensors is %s so far, and %s were planned", l.rank.Number, device.Size(r.device.Arena.Usage().Max), device.Size(planned))
	}
	i.MemoryLine = l.rank.Coordinates.DP == 0
	if l.config.Log.Memory {
		i.Usage, err = l.usage(r.device.Arena.Usage())
	}
	return err
}

// purposes are bytes by purpose with their names, without zeros.
func purposes(bytes [device.Purposes]int64) (values []telemetry.Value) {
	for p := range device.Purposes {
		if bytes[p] > 0 {
			values = append(values, telemetry.Value{Name: p.String(), Value: float64(bytes[p])})
		}
	}
	return values
}

// usage is what each rank holds for what.
func (l *logger) usage(u device.Usage) (*telemetry.Usage, error) {
	out := &telemetry.Usage{}
	var mine []float64
	for p := range device.Purposes {
		out.Purposes, mine = append(out.Purposes, p.String()), append(mine, float64(u.Peak[p]))
	}
	all, err := l.gather(append(mine, float64(u.Max)))
	if err != nil {
		return nil, err
	}
	for i, row := range all {
		at, n := l.rank.Sizes.At(i), len(out.Purposes)
		out.Ranks = append(out.Ranks, telemetry.RankMemory{Rank: fmt.Sprintf("%d (tp %d, pp %d, dp %d)", i, at.TP, at.PP, at.DP), ByPurpose: row[:n], AtOnce: row[n]})
	}
	return out, nil
}

func memoryOf(d *device.Device) telemetry.Memory {
	u := d.Arena.Usage()
	return telemetry.Memory{Allocated: u.Allocated, MaxAllocated: u.Max, Reserved: u.Reserved, MaxReserved: u.Reserved, Allocations: u.Blocks}
}

// timing gathers the timers of the level asked for, the memory that ranks had in use and
// what they did themselves.
func (l *logger) timing(r *Run, i *telemetry.Interval) error {
	t := &i.Timers
	t.Option, t.Names = l.config.Log.TimingOption, telemetry.LoggedTimers(l.config.Log.TimingLevel)
	own, any := l.worked.since(l.rank)
	all, err := l.gather(slices.Concat(l.timers.Take(t.Names), []float64{float64(r.device.Arena.Usage().Max)}, own))
	if err != nil {
		return err
	}
	for _, row := range all {
		t.Seconds = append(t.Seconds, row[:len(t.Names)])
		i.RankMemory = append(i.RankMemory, int64(row[len(t.Names)]))
		if any && len(all) > 1 {
			i.Work.Seconds = append(i.Work.Seconds, row[len(t.Names)+1:])
		}
	}
	for _, p := range stepPhases {
		i.Work.Phases = append(i.Work.Phases, p.String())
	}
	kinds := make([]int, len(i.Work.Seconds))
	for rank := range kinds {
		kinds[rank] = l.rank.Sizes.At(rank).PP
	}
	i.Scores = l.scorer.Score(i.Work.Ranks(), kinds)
	return nil
}

// stages logs what the stages of the last copy of the model did in this step.
func (l *logger) stages(r *Run, done stepLog, i *telemetry.Interval) error {
	if !r.Engine.MeasuresStages() {
		return nil
	}
	u := done.result.Pipeline
	all, err := l.gather([]float64{u.Forward.Seconds(), u.Backward.Seconds(), u.Waiting.Seconds(), u.Total.Seconds()})
	if err != nil {
		return err
	}
	at, stages := l.rank.Sizes.At(len(all)-1), make(schedule.Measured, l.rank.Sizes.PP)
	span := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	for stage := range stages {
		at.PP = stage
		row := all[l.rank.Sizes.Rank(at)]
		stages[stage] = schedule.Usage{Forward: span(row[0]), Backward: span(row[1]), Waiting: span(row[2]), Total: span(row[3])}
	}
	i.Stages = stages.Line(l.config.PipelineSchedule(done.batch.Micros, false))
	return nil
}
