package plan

import (
	"slices"
	"strconv"

	"monotron/megatron/config"
	"monotron/megatron/spec"
)

// candidates are the layouts that are tried, as flags: some of them training refuses.
func (s *Search) candidates(base *config.Run) (flags [][]string) {
	for _, tp := range divisors(s.Devices) {
		for _, pp := range divisors(s.Devices / tp) {
			if base.Model.NumAttentionHeads%tp != 0 || pp > base.Model.NumLayers || tp > 4*s.Machine.PerNode {
				continue
			}
			for _, cp := range divisors(s.Devices / tp / pp) {
				if cp > 1 && (base.SeqLength%(2*cp) != 0 || base.SeqLength/cp < shortest) {
					continue
				}
				flags = append(flags, s.layouts(base, cut{tp, pp, cp, s.Devices / tp / pp / cp})...)
			}
		}
	}
	return flags
}

// shortest is the fewest positions that ranks which share sequences have each: below it
// there is nothing to gain by sharing.
const shortest = 512

// cut is how devices share a model.
type cut struct{ tp, pp, cp, dp int }

func divisors(n int) (all []int) {
	for d := 1; d <= n; d++ {
		if n%d == 0 {
			all = append(all, d)
		}
	}
	return all
}

// layouts are the variations of a cut.
func (s *Search) layouts(c *config.Run, by cut) (all [][]string) {
	m := &c.Model
	flags := []string{"--world-size", strconv.Itoa(s.Devices), "--tensor-model-parallel-size", strconv.Itoa(by.tp), "--pipeline-model-parallel-size", strconv.Itoa(by.pp)}
	if by.cp > 1 {
		flags = append(flags, "--context-parallel-size", strconv.Itoa(by.cp))
	}
	if by.tp > 1 {
		flags = append(flags, "--sequence-parallel")
	}
	shardings := [][]string{nil}
	if by.dp*by.cp > 1 {
		overlapped := []string{"--use-distributed-optimizer", "--overlap-grad-reduce"}
		shardings = append(shardings, overlapped, slices.Concat(overlapped, []string{"--data-parallel-sharding-strategy", "optim_grads"}))
		if by.pp == 1 { // with stages every micro-batch would gather all again
			shardings = append(shardings, slices.Concat(overlapped, []string{"--data-parallel-sharding-strategy", "optim_grads_params"}))
		}
	}
	recomputes := [][]string{nil, {"--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"}}
	for _, micro := range []int{1, 2, 4, 8, 16} {
		if c.GlobalBatchSize%(micro*by.dp) != 0 {
			continue
		}
		for _, experts := range expertCuts(m, by) {
			for _, sharding := range shardings {
				for _, recompute := range recomputes {
					for _, chunk := range chunksOf(m, by.pp) {
						all = append(all, slices.Concat(flags, []string{"--micro-batch-size", strconv.Itoa(micro)}, experts, chunk, sharding, recompute))
					}
				}
			}
		}
	}
	return all
}

// expertCuts are the ways to share experts.
func expertCuts(m *spec.Model, by cut) (all [][]string) {
	if m.Experts == nil {
		return [][]string{nil}
	}
	for _, etp := range slices.Compact([]int{1, by.tp}) {
		for _, ep := range divisors(by.tp * by.cp * by.dp / etp) {
			if m.Experts.Num%ep == 0 && (ep > 1 || etp == by.tp) {
				all = append(all, []string{"--expert-model-parallel-size", strconv.Itoa(ep), "--expert-tensor-parallel-size", strconv.Itoa(etp)})
			}
		}
	}
	return all
}

// chunksOf are the ways to cut layers over stages.
func chunksOf(m *spec.Model, pp int) (chunks [][]string) {
	if m.NumLayers%pp == 0 {
		chunks = [][]string{nil}
	}
	if pp == 1 {
		return chunks
	}
	chunks = append(chunks, []string{"--pp-partition-method", "type:transformer|embedding"}) // embedding and head as a layer each
	for _, vp := range []int{2, 3, 4, 6, 8} {
		chunk := []string{"--num-virtual-stages-per-pipeline-rank", strconv.Itoa(vp)}
		switch {
		case m.NumLayers%(pp*vp) == 0:
			chunks = append(chunks, chunk)
		case (m.NumLayers+2)%(pp*vp) == 0:
			chunks = append(chunks, append(chunk, "--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split"))
		}
	}
	return chunks
}
