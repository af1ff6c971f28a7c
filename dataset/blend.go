package dataset

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
)

// Blended is Megatron's BlendedDataset: samples of several datasets, interleaved
// so that at every point the shares are as near the weights as they can be.
type Blended struct {
	Members []*GPT
	Split   Split
	// Size is the number of samples, nil when every sample of every member is
	// used once (then Weights are the members' lengths).
	Size    *int64
	Weights []float64
	// Sample k is sample DatasetSampleIndex[k] of member DatasetIndex[k].
	DatasetIndex, DatasetSampleIndex Array

	Description pyDict
	Hash        string
}

func (b *Blended) Len() int64 { return b.DatasetIndex.Len() }

// DescriptionJSON is the text whose MD5 is Hash.
func (b *Blended) DescriptionJSON() string { return pyJSON(b.Description) }

func (b *Blended) Sample(k int64) (Sample, error) {
	if k < 0 || k >= b.Len() {
		return Sample{}, exitcode.Errorf(exitcode.Internal, "blend: internal error: sample %d was requested, but there are %d samples; report this, and include the command line", k, b.Len())
	}
	var member, number int64
	err := Guard("the cached blend "+b.Hash, func() error {
		member, number = b.DatasetIndex.At(k), b.DatasetSampleIndex.At(k)
		return nil
	})
	if err != nil {
		return Sample{}, err
	}
	if member < 0 || member >= int64(len(b.Members)) || number < 0 || number >= b.Members[member].Len() {
		return Sample{}, exitcode.Errorf(exitcode.BadData, "the cached %s blend %s is damaged at sample %d; remove its files from the cache folder to have them rebuilt", b.Split, b.Hash, k)
	}
	return b.Members[member].Sample(number)
}

// maxMembers is what the 16-bit dataset index allows.
const maxMembers = 32767

// newBlended interleaves members; size nil uses every sample once.
func newBlended(members []*GPT, weights []float64, size *int64, split Split, c *cache) (*Blended, error) {
	b := &Blended{Members: members, Split: split, Size: size, Weights: weights}
	if size != nil {
		b.Weights = normalize(weights)
	}
	if len(members) >= maxMembers {
		return nil, exitcode.Errorf(exitcode.Usage, "the blend has %d datasets; it must have fewer than %d", len(members), maxMembers)
	}
	b.describe()
	if path := c.blendPath(b); path != "" {
		load := func(say func(string)) bool { return c.loadArrays(b, say) || c.loadBlend(b, say) }
		return b, c.make(c.blendLease(b), load, func() (bool, error) { return true, c.buildArrays(b, path) })
	}
	for _, m := range members {
		if err := m.make(c); err != nil {
			return nil, err
		}
	}
	return b, b.build(c)
}

// build fills the blend's own arrays.
func (b *Blended) build(c *cache) error {
	n := b.length()
	bytes, ok := safeProduct(2+8, n)
	if err := c.fits(fmt.Sprintf("the %s blend", b.Split), n, bytes, ok); err != nil {
		return err
	}
	b.DatasetIndex, b.DatasetSampleIndex = newArray("<i2", n), newArray("<i8", n)
	counts := b.interleave()
	for i, count := range counts {
		if have := b.Members[i].Len(); count > have {
			return exitcode.Errorf(exitcode.BadData, "the %s blend, which rounds up the share of each dataset, needs %d samples of %s (dataset %d, weight %s), but this dataset has only %d; give fewer datasets with small weights, or a larger --mid-level-dataset-surplus", b.Split, count, b.Members[i].Prefix, i, pyFloat(b.Weights[i]), have)
		}
	}
	return nil
}

// BlendOrder is the order of a blend of members with these weights: the member of
// every sample, and its number within the member.
func BlendOrder(weights []float64, samples int64) (member, number Array) {
	member, number = newArray("<i2", samples), newArray("<i8", samples)
	left := make([]int64, len(weights))
	for i := range left {
		left[i] = math.MaxInt64
	}
	interleave(normalize(weights), left, items[int16](member), items[int64](number))
	return member, number
}

// length is the number of samples of the blend.
func (b *Blended) length() int64 {
	if b.Size != nil {
		return *b.Size
	}
	n := int64(0)
	for _, m := range b.Members {
		n += m.Len()
	}
	return n
}

// interleave fills the arrays: each sample comes from the member that is
// furthest behind its share, with Size nil from one that is not used up.
func (b *Blended) interleave() []int64 {
	shares, left := b.Weights, make([]int64, len(b.Members))
	for i, m := range b.Members {
		left[i] = math.MaxInt64
		if b.Size == nil {
			left[i] = m.Len()
		}
	}
	if b.Size == nil {
		shares = make([]float64, len(b.Weights))
		total := float64(b.length())
		for i, w := range b.Weights {
			shares[i] = w / total
		}
	}
	members := items[int16](b.DatasetIndex)
	interleave(shares, left, members, items[int64](b.DatasetSampleIndex))
	counts := make([]int64, len(b.Members))
	for _, m := range members {
		counts[m]++
	}
	return counts
}

func (b *Blended) describe() {
	members, weights := make([]any, len(b.Members)), make([]any, len(b.Weights))
	for i, m := range b.Members {
		members[i] = m.Description
		if weights[i] = b.Weights[i]; b.Size == nil {
			weights[i] = int64(b.Weights[i])
		}
	}
	b.Description = pyDict{
		{"class", "BlendedDataset"}, {"datasets", members}, {"split", b.Split.String()}, {"weights", weights}, {"size", nil},
	}
	if b.Size != nil {
		b.Description[4].value = *b.Size
	}
	b.Hash = md5Hex(b.DescriptionJSON())
}

// loadBlend takes the arrays of b and its members from files of Megatron's form, which earlier versions wrote, too.
func (c *cache) loadBlend(b *Blended, say func(string)) bool {
	for _, m := range b.Members {
		if !c.load(m, m.plan, say) {
			return false
		}
	}
	n := b.length()
	var ok [2]bool
	found := *b
	found.DatasetIndex, ok[0] = loadNPY(cacheFile(c.path, b.Hash, "BlendedDataset", b.Split, "dataset_index.npy"), "<i2", n)
	found.DatasetSampleIndex, ok[1] = loadNPY(cacheFile(c.path, b.Hash, "BlendedDataset", b.Split, "dataset_sample_index.npy"), "<i8", n)
	if !ok[0] || !ok[1] {
		return false
	}
	fits := false
	err := Guard("the cached blend "+b.Hash, func() error {
		fits = found.fitsMembers(n)
		return nil
	})
	switch {
	case err != nil:
		say(err.Error() + "; the cached files are rebuilt")
	case !fits:
		say("the cached blend " + b.Hash + " does not match the current data; the cached files are rebuilt")
	default:
		*b = found
	}
	return err == nil && fits
}

// blendLease is the file of the lease for b's file.
func (c *cache) blendLease(b *Blended) string {
	return cacheFile(c.path, b.Hash, "BlendedDataset", b.Split, "building")
}

// fitsMembers says that entries, of n, are samples that their members have.
func (b *Blended) fitsMembers(n int64) bool {
	return sampled(n, func(k int64) bool {
		i := b.DatasetIndex.At(k)
		return i < int64(len(b.Members)) && b.DatasetSampleIndex.At(k) < b.Members[i].Len()
	})
}

// normalize divides by numpy's sum.
func normalize(w []float64) []float64 {
	out, sum := make([]float64, len(w)), pairwiseSum(w)
	for i := range w {
		out[i] = w[i] / sum
	}
	return out
}

// pairwiseSum is numpy's sum of float64: in order below 8 items, 8 running sums
// up to 128, halves beyond.
func pairwiseSum(a []float64) float64 {
	n := len(a)
	switch {
	case n < 8:
		sum := 0.0
		for _, v := range a {
			sum += v
		}
		return sum
	case n <= 128:
		// Eight running sums, added as a tree: numpy's order.
		var r [8]float64
		copy(r[:], a)
		i := 8
		for ; i < n-n%8; i += 8 {
			for j := range r {
				r[j] += a[i+j]
			}
		}
		sum := ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]))
		// What does not fill a group of eight.
		for ; i < n; i++ {
			sum += a[i]
		}
		return sum
	}
	// Halves that are multiples of eight, as numpy cuts.
	half := n / 2
	half -= half % 8
	return pairwiseSum(a[:half]) + pairwiseSum(a[half:])
}

// mixture is the value of --data-path and its like: prefixes, with weights or
// without (nil).
type mixture struct {
	prefixes []string
	weights  []float64
	rows     []splitRow // parts of the data that are taken; nil: what the split is
}

// parseMixture distinguishes `0.3 a 0.7 b` from `a b`: an even list whose every second
// entry is a number has weights.
func parseMixture(flag string, words []string) (m mixture, err error) {
	if len(words)%2 == 1 {
		return mixture{prefixes: trimmed(words)}, nil
	}
	numbers := 0
	for i := 0; i < len(words); i += 2 {
		if w, err := strconv.ParseFloat(strings.TrimSpace(words[i]), 64); err == nil {
			numbers++
			m.weights = append(m.weights, w)
		}
	}
	switch numbers {
	case 0:
		return mixture{prefixes: trimmed(words)}, nil
	case len(words) / 2:
	default:
		return m, exitcode.Errorf(exitcode.Usage, "%s: some of the entries %q are weights and some are not; give every dataset a weight, or give no weights", flag, words)
	}
	for i := 1; i < len(words); i += 2 {
		if err := checkWeight(flag, words[i-1], m.weights[i/2], words[i]); err != nil {
			return m, err
		}
		m.prefixes = append(m.prefixes, strings.TrimSpace(words[i]))
	}
	return m, nil
}

// checkWeight refuses a weight that no blend can have.
func checkWeight(flag, word string, w float64, prefix string) error {
	if !(w > 0) || math.IsInf(w, 0) {
		return exitcode.Errorf(exitcode.Usage, "%s: the weight %s of %s is not a positive number", flag, word, prefix)
	}
	return nil
}

func trimmed(words []string) []string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = strings.TrimSpace(w)
	}
	return out
}
