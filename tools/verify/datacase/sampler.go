package datacase

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"

	"monotron/dataset"
)

type samplerCase struct {
	ID         string
	Kind       string
	Total      int64
	DP         int64
	MicroBatch int64 `json:"micro_batch"`
	Consumed   int64
	Passes     int
	Sharding   *bool
	Error      string
	Ranks      []struct {
		Rank int64
		Pass []struct {
			Batches int
			SHA256  string `json:"sha256_i64"`
			After   *int64 `json:"consumed_after"`
		}
	}
}

func runSampler(c samplerCase) (l list) {
	order, known := map[string]dataset.Order{
		"single": dataset.Single, "cyclic": dataset.Cyclic, "full_validation": dataset.FullValidation,
	}[c.Kind]
	if !known {
		l.add("unknown kind %q", c.Kind)
		return l
	}
	// Every rank, or the error that Megatron gives.
	for rank := range max(c.DP, 1) {
		s, err := dataset.NewSampler(dataset.SamplerConfig{
			Order: order, Total: c.Total, MicroBatch: c.MicroBatch, Rank: rank, DP: c.DP,
			Unsharded: c.Sharding != nil && !*c.Sharding,
		})
		if err == nil && c.Error != "" {
			_, _, err = s.Pass(c.Consumed)
		}
		if c.Error != "" {
			if err == nil {
				l.add("rank %d: no error; Megatron has %q", rank, c.Error)
			}
			continue
		}
		if err != nil {
			l.add("rank %d: %v", rank, err)
			continue
		}
		l = append(l, runPasses(s, c, int(rank))...)
	}
	return l
}

func runPasses(s *dataset.Sampler, c samplerCase, rank int) (l list) {
	if rank >= len(c.Ranks) || len(c.Ranks[rank].Pass) != c.Passes {
		l.add("rank %d: the case lists no such rank, or not %d passes", rank, c.Passes)
		return l
	}
	consumed := c.Consumed
	for i, want := range c.Ranks[rank].Pass {
		batches, after, err := s.Pass(consumed)
		if err != nil {
			l.add("rank %d pass %d: %v", rank, i, err)
			return l
		}
		consumed = after
		where := fmt.Sprintf("rank %d pass %d: ", rank, i)
		same(&l, where+"batches", len(batches), want.Batches)
		same(&l, where+"numbers", hashI64(flatten(batches)), want.SHA256)
		if want.After != nil {
			same(&l, where+"consumed", after, *want.After)
		}
	}
	return l
}

func flatten(batches [][]int64) (all []int64) {
	for _, b := range batches {
		all = append(all, b...)
	}
	return all
}

func hashI64(values []int64) string {
	b := make([]byte, 0, 8*len(values))
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return hashBytes(b)
}

func hashBytes(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
