package megatron

import (
	"fmt"
	"strings"

	"monotron/megatron/checkpoint"
)

// Placed is a parameter in a flat bucket.
type Placed struct {
	Local
	Start int64 // element of the bucket
}

// Bucket is a stretch of the distributed optimizer's flat buffer.
type Bucket struct {
	Params []Placed
	Numel  int64 // without the padding behind it, which files do not keep
}

// bucketAlign is where parameters may start.
const bucketAlign = 64

// Buckets lays a chunk's parameters out as Megatron's gradient buffer does:
// last one first, each at a multiple of 64 elements, a new bucket where one
// holds `size` elements (0: never), and one of its own for an embedding that two
// stages share.
func Buckets(params []Local, size int64, shared bool) []Bucket {
	var list []Bucket
	params = Trained(params)
	current := Bucket{}
	finish := func() {
		if len(current.Params) > 0 {
			list = append(list, current)
			current = Bucket{}
		}
	}
	for i := len(params) - 1; i >= 0; i-- {
		p := params[i]
		apart := shared && p.Name == checkpoint.WordEmbeddings
		if apart {
			finish()
		}
		start := (current.Numel + bucketAlign - 1) / bucketAlign * bucketAlign
		current.Params = append(current.Params, Placed{p, start})
		current.Numel = start + checkpoint.Volume(p.Shape)
		if apart || size > 0 && current.Numel >= size {
			finish()
		}
	}
	finish()
	return list
}

// Numel is the length of buckets one behind the other.
func Numel(buckets []Bucket) int64 {
	n := int64(0)
	for _, b := range buckets {
		n += b.Numel
	}
	return n
}

// BucketSize is the size at which Megatron closes a bucket, 0 for one bucket,
// by the run's arguments.
func (a Args) BucketSize(r Rank, chunk int, params []Local) int64 {
	const least, perRank = 40_000_000, 1_000_000
	if !a.Bool("overlap_grad_reduce") || r.PP > 0 || chunk > 0 {
		return 0
	}
	if n := a.Int("ddp_num_buckets", 0); n > 0 {
		total := int64(0)
		for _, p := range params {
			total += checkpoint.Volume(p.Shape)
		}
		return max(1, total/int64(n))
	}
	if n := a.Int("ddp_bucket_size", 0); n > 0 {
		return int64(n)
	}
	return max(least, perRank*int64(a.Int("data_parallel_size", 1)))
}

// BucketsOf lays parameters out in buckets whose lengths are known.
func BucketsOf(params []Local, numels []int64) ([]Bucket, error) {
	list := make([]Bucket, len(numels))
	params = Trained(params)
	b := 0
	for i := len(params) - 1; i >= 0; i-- {
		if b == len(list) {
			return nil, fmt.Errorf("%d parameters of the model do not fit in the buckets, whose lengths are %v elements", i+1, numels)
		}
		start := (list[b].Numel + bucketAlign - 1) / bucketAlign * bucketAlign
		list[b].Params = append(list[b].Params, Placed{params[i], start})
		list[b].Numel = start + checkpoint.Volume(params[i].Shape)
		switch {
		case list[b].Numel > numels[b]:
			return nil, fmt.Errorf("bucket %d has %d elements, so it ends within one of the model's parameters", b, numels[b])
		case list[b].Numel == numels[b]:
			b++
		}
	}
	if b != len(list) {
		return nil, fmt.Errorf("the parameters of the model fill only %d of %d buckets", b, len(list))
	}
	return list, nil
}

// MadeOrder is the order in which a run of these arguments made its parameters,
// from that of the local layer spec: with Transformer Engine the norm before QKV
// is part of it, and grouped experts are matrix by matrix.
func (a Args) MadeOrder(list []Local) []Local {
	if a.Text("transformer_impl", "transformer_engine") == "local" {
		return list
	}
	var out, norms, second []Local
	for _, p := range list {
		rest := Split(p.Name).Rest
		if p.Expert && a.Bool("moe_grouped_gemm") && strings.HasPrefix(rest, "linear_fc2.") {
			second = append(second, p)
			continue
		}
		if !p.Expert {
			out, second = append(out, second...), nil
		}
		switch {
		case strings.HasPrefix(rest, "input_layernorm.") && !a.Bool("multi_latent_attention"):
			norms = append(norms, p)
			continue
		case strings.HasPrefix(rest, "self_attention.linear_qkv."):
			out, norms = append(out, norms...), nil
		}
		out = append(out, p)
	}
	return append(append(out, norms...), second...)
}
