package datacase

import (
	"fmt"
	"slices"
	"strings"

	"monotron/dataset"
)

// checkSamples reads the samples of the case's detail file under each set of
// mask flags, in the order listed. The datasets come from the cache this time.
func (r *run) checkSamples(l *list) {
	// All sets of flags that occur.
	flags := map[string]bool{}
	for _, d := range r.detail.Splits {
		if d != nil {
			for f := range d.Samples {
				flags[f] = true
			}
		}
	}
	// Data sets with these flags, sample by sample.
	for f := range flags {
		c := r.config
		c.ResetPositionIDs = strings.Contains(f, "reset_position_ids")
		c.ResetAttentionMask = strings.Contains(f, "reset_attention_mask")
		c.EODMaskLoss = strings.Contains(f, "eod_mask_loss")
		sets, err := r.build(c)
		if err != nil {
			l.add("%s: %v", f, err)
			continue
		}
		for _, s := range splitNames {
			if d := r.detail.Splits[s]; d != nil && sets[s] != nil {
				leak := leaky{on: f == "none" && !c.InterDocumentMasking, zeros: map[int64][]bool{}}
				for _, want := range d.Samples[f] {
					checkSample(l, fmt.Sprintf("%s sample %d (%s)", s, want.Index, f), sets[s], want, leak)
				}
			}
		}
	}
}

// leaky imitates a slip of Megatron's, which our datasets do not have: without
// mask flags the first loss mask of each dataset is kept and zeroed in place,
// so padding positions of one sample stay masked in all later ones.
type leaky struct {
	on    bool
	zeros map[int64][]bool // by dataset_id
}

func (k leaky) apply(mask []float32, id *int64) {
	member := int64(-1)
	if id != nil {
		member = *id
	}
	if k.zeros[member] == nil {
		k.zeros[member] = make([]bool, len(mask))
	}
	for i := range mask {
		if mask[i] == 0 {
			k.zeros[member][i] = true
		}
		if k.on && k.zeros[member][i] {
			mask[i] = 0
		}
	}
}

func checkSample(l *list, name string, set dataset.Dataset, want wantSample, leak leaky) {
	got, err := set.Sample(want.Index)
	if err != nil {
		l.add("%s: %v", name, err)
		return
	}
	if b, ok := set.(*dataset.Blended); ok && want.DatasetID != nil {
		same(l, name+" dataset_id", b.DatasetIndex.At(want.Index), *want.DatasetID)
	}
	// The four rows of a sample, then masks and lengths where the case has them.
	leak.apply(got.LossMask, want.DatasetID)
	checkValues(l, name+" tokens", got.Tokens, want.Tokens)
	checkValues(l, name+" labels", got.Labels, want.Labels)
	checkValues(l, name+" loss_mask", got.LossMask, want.LossMask)
	checkValues(l, name+" position_ids", got.PositionIDs, want.PositionIDs)
	if want.Attention != nil {
		mask, blocked := attention(got.DocStart)
		same(l, name+" blocked", blocked, want.Attention.Blocked)
		same(l, name+" attention_mask", hashBytes(mask), want.Attention.SHA256)
	}
	if want.CuSeqlens != nil {
		checkValues(l, name+" cu_seqlens", got.CuSeqlens, wantValues{List: want.CuSeqlens})
		longest := int32(0)
		for i := 1; i < len(got.CuSeqlens); i++ {
			longest = max(longest, got.CuSeqlens[i]-got.CuSeqlens[i-1])
		}
		same(l, name+" max_seqlen", int64(longest), want.MaxSeqlen)
	}
}

func checkValues[T int32 | float32](l *list, name string, got []T, want wantValues) {
	wide := make([]int64, len(got))
	for i, v := range got {
		wide[i] = int64(v)
	}
	if want.SHA256 != "" {
		same(l, name, hashI64(wide), want.SHA256)
	} else if !slices.Equal(wide, want.List) {
		l.add("%s are %v, want %v", name, wide, want.List)
	}
}

// attention is Megatron's mask [1, s, s], one byte an element, 1 = blocked.
func attention(docStart []int32) (mask []byte, blocked int64) {
	n := len(docStart)
	mask = make([]byte, n*n)
	for q := range n {
		for k := range n {
			if k > q || k < int(docStart[q]) {
				mask[q*n+k] = 1
				blocked++
			}
		}
	}
	return mask, blocked
}
