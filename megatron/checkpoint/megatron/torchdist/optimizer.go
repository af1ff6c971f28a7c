package torchdist

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/megatron"
	"monotron/mpu"
)

// flatKey is a bucket of the distributed optimizer (dp_reshardable).
var flatKey = regexp.MustCompile(`^(?:chained_(\d+)\.)?optimizer\.distributed\.dp_group_idx_(\d+)\.gbuf_idx_(\d+)\.dtype_\(([^)]*)\)\.bucket_idx_(\d+)\.(param|exp_avg|exp_avg_sq)$`)

// readOptimizer takes what the optimizer's unsharded part says, and the flat
// buffers where there are some.
func (s *source) readOptimizer() error {
	if v, ok := s.common.Get("optimizer"); ok {
		if d, ok := v.(*pickle.Dict); ok {
			if err := s.optimizerState(d); err != nil {
				return err
			}
		}
	}
	for _, name := range []string{"optimizer", "grad_scaler"} {
		for _, chained := range []string{"", "chained_0."} {
			where, ok := s.index.objects[chained+"optimizer.distributed.dp_group_idx_0."+name+"/shard_0_1"]
			if !ok {
				continue
			}
			v, err := s.bytes.object(where)
			if err != nil {
				return err
			}
			if err := s.optimizerState(pickle.NewDict(name, v)); err != nil {
				return err
			}
		}
	}
	return s.readFlat()
}

// optimizerState reads {optimizer: {param_groups}, grad_scaler}, or param_groups alone.
func (s *source) optimizerState(d *pickle.Dict) error {
	inner := d
	if v, ok := d.Get("optimizer"); ok {
		if one, ok := v.(*pickle.Dict); ok {
			inner = one
		}
	}
	if n, ok := megatron.ReadSteps(inner); ok {
		megatron.SetSteps(&s.state, n)
	}
	if v, ok := d.Get("grad_scaler"); ok && s.state.Scaler == nil {
		text, err := megatron.ReadScaler(v)
		if err != nil {
			return err
		}
		s.state.Scaler = text
	}
	return nil
}

// buffer is a gradient buffer of one model-parallel rank.
type buffer struct {
	chained, group, chunk int
	buckets               map[int]map[string]*stored // bucket, kind
}

// readFlat finds the parameters in the flat buffers.
func (s *source) readFlat() error {
	// Tensors of a buffer, by bucket and kind, from their names.
	buffers := map[[3]int]*buffer{}
	var order [][3]int
	types := map[[3]int]string{}
	for _, x := range s.index.tensors {
		m := flatKey.FindStringSubmatch(x.key)
		if m == nil {
			continue
		}
		var n [4]int
		for i, text := range []string{m[1], m[2], m[3], m[5]} {
			n[i], _ = strconv.Atoi("0" + text)
		}
		key := [3]int{n[0], n[1], n[2]}
		if buffers[key] == nil {
			buffers[key] = &buffer{n[0], n[1], n[2], map[int]map[string]*stored{}}
			order = append(order, key)
			types[key] = m[4]
		}
		if types[key] != m[4] {
			return fmt.Errorf("%s: parameters of several types in one buffer are not supported", x.key)
		}
		b := buffers[key].buckets
		if b[n[3]] == nil {
			b[n[3]] = map[string]*stored{}
		}
		b[n[3]][m[6]] = x
	}
	// Buffers in order.
	slices.SortFunc(order, func(a, b [3]int) int { return slices.Compare(a[:], b[:]) })
	for _, key := range order {
		if err := s.addBuffer(buffers[key]); err != nil {
			return fmt.Errorf("optimizer.distributed.dp_group_idx_%d.gbuf_idx_%d: %w", key[1], key[2], err)
		}
	}
	return s.checkFlat()
}

// checkFlat checks whether the ranks' buffers make complete tensors.
func (s *source) checkFlat() error {
	used := 0
	for _, t := range s.list {
		if e := s.parts[t.Name]; e.boxes != nil {
			if err := checkpoint.Tile(t.Shape, e.boxes, &used); err != nil {
				return fmt.Errorf("tensor %q: %w", t.Name, err)
			}
		}
	}
	return nil
}

// addBuffer lays the rank's parameters out in its buckets.
func (s *source) addBuffer(b *buffer) error {
	params, err := s.paramsOf(b)
	if err != nil {
		return err
	}
	// The buckets' lengths, and which parameters fill them.
	sizes := make([]int64, len(b.buckets))
	for i := range sizes {
		x := b.buckets[i]["exp_avg"]
		if x == nil {
			return fmt.Errorf("bucket %d has no exp_avg", i)
		}
		if len(x.shape) != 1 || x.dtype != "F32" {
			return fmt.Errorf("bucket %d: exp_avg is %s%v; it must be F32 with one dimension", i, x.dtype, x.shape)
		}
		sizes[i] = x.shape[0]
	}
	buckets, err := megatron.BucketsOf(params, sizes)
	if err != nil {
		return err
	}
	// Every kind of state has the same layout.
	for i, bucket := range buckets {
		for kind, x := range b.buckets[i] {
			if kind == "param" && s.valuesAreF32() {
				continue
			}
			if len(x.shape) != 1 || x.shape[0] != sizes[i] || x.dtype != "F32" {
				return fmt.Errorf("bucket %d: %s is %s%v; it must be F32[%d], as exp_avg is", i, kind, x.dtype, x.shape, sizes[i])
			}
			for _, p := range bucket.Params {
				s.addPlaced(kindOf[kind], p, x)
			}
		}
	}
	return nil
}

// addPlaced adds a parameter's stretch of a flat tensor as parts of ours.
func (s *source) addPlaced(prefix string, p megatron.Placed, x *stored) {
	name := prefix + p.Name
	e := s.parts[name]
	if e == nil {
		e = &entry{Tensor: checkpoint.Tensor{Name: name, DType: "F32", Shape: s.shapes[p.Name]}}
		s.parts[name] = e
		s.list = append(s.list, e.Tensor)
	}
	chunks := s.bytes.parts(x)
	read := func(dst []byte, at int64) error {
		from := p.Start + at/4
		return checkpoint.ReadParts(chunks, 4, mpu.Piece{From: []int64{from}, Size: []int64{int64(len(dst)) / 4}}, dst)
	}
	for _, part := range p.Parts(4, nil, read) {
		if slices.ContainsFunc(e.boxes, func(b mpu.Piece) bool { return checkpoint.Meets(b, part.Box) }) {
			continue // a replica
		}
		e.parts, e.boxes = append(e.parts, part), append(e.boxes, part.Box)
	}
}

// paramsOf are a buffer's parameters in the order in which Megatron made them.
func (s *source) paramsOf(b *buffer) ([]megatron.Local, error) {
	l := s.layout
	// A layout that is written out does not say in which order parameters were made.
	l.FirstStage, l.LastStage = s.args.Int("decoder_first_pipeline_num_layers", 0), s.args.Int("decoder_last_pipeline_num_layers", 0)
	if strings.TrimSpace(s.args.Text("pipeline_model_parallel_layout", "")) != "" {
		return nil, fmt.Errorf("a run with --pipeline-model-parallel-layout stores its optimizer in buffers of unknown order; save the checkpoint with --dist-ckpt-optim-fully-reshardable, or use --weights-only")
	}
	stages, err := megatron.Stages(s.model, l)
	if err != nil {
		return nil, err
	}
	// The rank whose buffer it is, from the number of its group.
	experts := b.chained > 0
	r := megatron.Rank{TP: b.group % l.TP, PP: b.group / l.TP}
	if experts {
		r = megatron.Rank{TP: b.group % l.ETP, EP: b.group / l.ETP % l.EP, PP: b.group / l.ETP / l.EP}
	}
	if r.PP >= l.PP || b.chunk >= len(stages[r.PP]) {
		return nil, fmt.Errorf("no rank has this buffer in the layout of the checkpoint's args (tp %d, pp %d, ep %d, %d chunks)", l.TP, l.PP, l.EP, l.VP)
	}
	// Its parameters; experts have buffers of their own.
	list, err := megatron.Locals(s.model, l, r, b.chunk, stages[r.PP][b.chunk])
	if err != nil {
		return nil, err
	}
	list = s.args.MadeOrder(list)
	if l.EP > 1 {
		list = slices.DeleteFunc(list, func(p megatron.Local) bool { return p.Expert != experts })
	}
	return list, nil
}
