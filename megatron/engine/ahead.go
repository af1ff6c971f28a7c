package engine

import (
	"math"

	"monotron/csrc/device"
	"monotron/megatron/model"
	"monotron/mpu"
	"monotron/mpu/comm"
)

// moved is each row moved d positions to the left; what comes in at its end is zero.
func moved[T any](rows [][]T, d int) [][]T {
	all := make([][]T, len(rows))
	for i, row := range rows {
		all[i] = make([]T, len(row))
		if d < len(row) {
			copy(all[i], row[d:])
		}
	}
	return all
}

// loadAhead is what the depths of multi-token prediction have of their own of a micro-batch;
// micros: how many a rank has in this step.
func (e *Engine) loadAhead(s allocator, m *Micro, here mpu.Positions, micros int) (all []model.Ahead) {
	mtp := e.config.Model.MTP
	if mtp == nil {
		return nil
	}
	own := e.counted(m.LossMask, here)
	for d := 1; d <= mtp.Depths; d++ {
		if e.config.Leaves > 0 {
			all = append(all, e.aheadBySample(s, m, here, micros, d))
			continue
		}
		mask := moved(m.LossMask, d)
		counted := e.counted(mask, here)
		mean := 1 / math.Max(1, counted) / float64(micros*e.means())
		weight := mean
		if e.config.CalculatePerTokenLoss { // the step is divided by the tokens of the next one's loss
			weight = own / math.Max(1, counted)
		}
		counts := mpu.Flatten(here, mask)
		all = append(all, model.Ahead{
			IDs:    put(e.device, s, device.I32, mpu.Flatten(here, moved(m.Tokens, d))),
			Labels: put(e.device, s, device.I32, mpu.Flatten(here, moved(m.Labels, d))),
			Weight: put(e.device, s, device.F32, times(counts, weight*mtp.LossScale/float64(mtp.Depths))),
			Mean:   put(e.device, s, device.F32, times(counts, mean)),
		})
	}
	return all
}

// aheadBySample is a depth where sums have leaves: each sample counts by itself, so that how many are
// in a micro-batch changes nothing.
func (e *Engine) aheadBySample(s allocator, m *Micro, here mpu.Positions, micros, d int) model.Ahead {
	mtp, all := e.config.Model.MTP, float64(micros*len(m.Tokens)*e.rank.Sizes.DP)
	mask := moved(m.LossMask, d)
	weights, means := make([][]float32, len(mask)), make([][]float32, len(mask))
	for i, row := range mask {
		counted := math.Max(1, e.counted(mask[i:i+1], here))
		weights[i] = times(row, e.counted(m.LossMask[i:i+1], here)/counted*mtp.LossScale/float64(mtp.Depths))
		means[i] = times(row, 1/(counted*all))
	}
	return model.Ahead{
		IDs:    put(e.device, s, device.I32, mpu.Flatten(here, moved(m.Tokens, d))),
		Labels: put(e.device, s, device.I32, mpu.Flatten(here, moved(m.Labels, d))),
		Weight: put(e.device, s, device.F32, mpu.Flatten(here, weights)),
		Mean:   put(e.device, s, device.F32, mpu.Flatten(here, means)),
	}
}

// addLosses adds a micro-batch's losses to the step's.
func (e *Engine) addLosses(p *model.Pass, out *model.Output, mask device.Tensor) {
	e.device.WeightedSum(device.WeightedSumArgs{Out: e.sums, X: out.Loss, W: mask, Bits: e.lossBits()})
	for i, loss := range out.Ahead {
		e.device.WeightedSum(device.WeightedSumArgs{Out: e.ahead.At(int64(i)), X: loss, W: p.Ahead[i].Mean, Bits: e.meanLossBits()})
	}
}

// sumAhead adds up what the ranks have of the depths' losses, each the mean over micro-batches
// and data-parallel ranks of their means over counted tokens.
func (e *Engine) sumAhead() error {
	if !e.ahead.Given() {
		return nil
	}
	if e.rank.Coordinates.TP != 0 {
		e.device.Fill(e.ahead, 0) // each rank of a tensor-parallel group has seen the same losses
	}
	return e.rank.World().AllReduce(e.ahead, comm.Sum).Wait()
}

// aheadLosses are the sums, by depth.
func (e *Engine) aheadLosses() (losses []float64) {
	if !e.ahead.Given() {
		return nil
	}
	sums := device.ReadSlice[float64](e.device, e.ahead)
	for d := 0; d < len(sums); d += 2 {
		losses = append(losses, sums[d])
	}
	return losses
}

// times are counts multiplied, as the device takes them.
func times(counts []float32, by float64) []float32 {
	all := make([]float32, len(counts))
	for i, v := range counts {
		all[i] = float32(float64(v) * by)
	}
	return all
}
