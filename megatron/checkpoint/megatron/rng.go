package megatron

import (
	"encoding/binary"

	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
)

// Sizes of the Mersenne Twister, and of torch's generators as uint8 tensors.
const (
	twister   = 624
	torchRNG  = 5056
	cudaRNG   = 16
	pairsBase = 2718 // Megatron's offset of tensor-parallel seeds
	expertRNG = 1024
)

// RNGState is a rank's entry of rng_state: the generators of random, numpy,
// torch and CUDA as they stand right after seeding. A checkpoint of ours has no
// generators to translate, its random numbers are counted.
func RNGState(seed uint64, r Rank) *pickle.Dict {
	state := seeded(uint32(seed))
	words := &pickle.Tuple{}
	raw := make(pickle.Bytes, 0, 4*twister)
	for _, w := range state {
		words.Items = append(words.Items, int64(w))
		raw = binary.LittleEndian.AppendUint32(raw, w)
	}
	words.Items = append(words.Items, int64(twister)) // all used up
	array := &pickle.Object{Class: "numpy.ndarray", State: &pickle.Tuple{Items: []pickle.Value{
		int64(1), &pickle.Tuple{Items: []pickle.Value{int64(twister)}}, numpyU32(), false, raw}}}
	return pickle.NewDict(
		"random_rng_state", &pickle.Tuple{Items: []pickle.Value{int64(3), words, nil}},
		"np_rng_state", &pickle.Tuple{Items: []pickle.Value{"MT19937", array, int64(twister), int64(0), 0.0}},
		"torch_rng_state", torchState(seed, state),
		"cuda_rng_state", cudaState(seed),
		"rng_tracker_states", pickle.NewDict(
			"data-parallel-rng", cudaState(seed),
			"model-parallel-rng", cudaState(seed+pairsBase+uint64(r.TP)),
			"expert-parallel-rng", cudaState(seed+expertRNG+uint64(100*r.EP+r.TP))))
}

// RNG is the generators' states of a checkpoint's ranks.
type RNG struct {
	Layout checkpoint.Layout
	States map[Rank]pickle.Value // rng_state of each
}

// RNGOf is the rank's rng_state: that which was read, where the grid is the
// same, or a fresh one. Megatron itself skips the states of another grid.
func (t *Target) RNGOf(r Rank) pickle.Value {
	if kept, ok := t.State.RNG.(*RNG); ok && kept != nil {
		if l := kept.Layout.Complete(); l.TP == t.Layout.TP && l.PP == t.Layout.PP && l.EP == t.Layout.EP && kept.States[r] != nil {
			return kept.States[r]
		}
	}
	return &pickle.List{Items: []pickle.Value{RNGState(t.State.Seed, r)}}
}

// seeded is MT19937's state for a seed (Matsumoto and Nishimura, 2002).
func seeded(seed uint32) [twister]uint32 {
	var s [twister]uint32
	s[0] = seed
	for i := 1; i < twister; i++ {
		s[i] = 1812433253*(s[i-1]^s[i-1]>>30) + uint32(i)
	}
	return s
}

func numpyU32() *pickle.Object {
	return &pickle.Object{Class: "numpy.dtype", Args: []pickle.Value{"u4", false, true},
		State: &pickle.Tuple{Items: []pickle.Value{int64(3), "<", nil, nil, nil, int64(-1), int64(-1), int64(0)}}}
}

// torchState is the CPU generator's: seed u64, numbers left i32, seeded i32,
// next u64, the twister's words as u64, then the pending normal numbers, none.
func torchState(seed uint64, state [twister]uint32) *pickle.Tensor {
	raw := make([]byte, 0, torchRNG)
	raw = binary.LittleEndian.AppendUint64(raw, seed)
	raw = binary.LittleEndian.AppendUint32(raw, 1)
	raw = binary.LittleEndian.AppendUint32(raw, 1)
	raw = binary.LittleEndian.AppendUint64(raw, 0)
	for _, w := range state {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(w))
	}
	return pickle.Constant("U8", []int64{torchRNG}, raw[:torchRNG:torchRNG])
}

// cudaState is a CUDA generator's: seed and offset, u64 each.
func cudaState(seed uint64) *pickle.Tensor {
	raw := make([]byte, cudaRNG)
	binary.LittleEndian.PutUint64(raw, seed)
	return pickle.Constant("U8", []int64{cudaRNG}, raw)
}
