package engine

import "monotron/mpu"

// fewRows is how many rows between two stretches of learned tokens go through the output layer with them: products
// of fewer rows take as long as reading the table.
const fewRows = 64

// learned is the stretches {first, number} of a micro-batch's rows here whose losses count; nil: all, or losses of
// others are read too. A stretch has complete positions, those of all samples.
func (e *Engine) learned(m *Micro, here mpu.Positions) [][2]int64 {
	if e.config.Leaves > 0 || e.device.Counts() || e.Objective != nil && e.Objective.ReadsAll() {
		return nil
	}
	mask, batch := mpu.Flatten(here, m.LossMask), int64(len(m.LossMask))
	all := [][2]int64{}
	for i, weight := range mask {
		if weight == 0 {
			continue
		}
		first := int64(i) / batch * batch // of the position
		if n := len(all); n > 0 && first-all[n-1][0]-all[n-1][1] < fewRows {
			all[n-1][1] = first + batch - all[n-1][0]
		} else {
			all = append(all, [2]int64{first, batch})
		}
	}
	if len(all) == 1 && len(mask)-int(all[0][1]) < fewRows {
		return nil
	}
	return all
}
