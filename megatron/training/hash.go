package training

import (
	"monotron/internal/fingerprint"
	"monotron/megatron/checkpoint/native"
)

// weightsHash is the hash of all weights that monotron inspect --verify gives for a native
// checkpoint of this step. All ranks call it together.
func (r *Run) weightsHash() (string, error) {
	own, err := native.Hash(r.Engine.Weights(), r.device)
	if err != nil {
		return "", err
	}
	total, err := r.log.added(own)
	return total.Hash(), err
}

// added is the sum of all ranks' fingerprints, which travel as numbers of 16 bits.
func (l *logger) added(own fingerprint.Sum) (total fingerprint.Sum, err error) {
	var row []float64
	for _, word := range own {
		for shift := 0; shift < 64; shift += 16 {
			row = append(row, float64(word>>shift&0xffff))
		}
	}
	all, err := l.gather(row)
	for _, row := range all {
		for i, part := range row {
			total[i/4] += uint64(part) << (16 * (i % 4))
		}
	}
	return total, err
}
