package torchdist

import (
	"fmt"
	"slices"
	"strings"

	"monotron/internal/pickle"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/megatron"
	"monotron/megatron/spec"
)

// description collects what .metadata will say.
type description struct {
	order   []string
	tensors map[string]*stored
	also    map[string]string // a tensor's second name
	objects map[string]location
	known   map[string]bool // chunks and objects, by chunkKey
	shapes  map[string][]int64
}

func newDescription() *description {
	return &description{tensors: map[string]*stored{}, also: map[string]string{}, objects: map[string]location{}, known: map[string]bool{}, shapes: map[string][]int64{}}
}

// claim reports whether nobody has this chunk or object yet, and gives it to the caller.
func (d *description) claim(key string, corner []int64) bool {
	name := chunkKey(key, corner)
	if d.known[name] {
		return false
	}
	d.known[name] = true
	return true
}

func (d *description) object(key string, where location) {
	d.objects[key] = where
	d.order = append(d.order, key)
}

func (d *description) chunk(key, dtype string, shape []int64, c chunk) {
	s := d.tensors[key]
	if s == nil {
		s = &stored{key: key, dtype: dtype, shape: shape}
		d.tensors[key] = s
		d.order = append(d.order, key)
	}
	s.chunks = append(s.chunks, c)
}

// stacking says where in a stacked tensor one of ours lies.
type stacking struct {
	key    string
	also   string  // the name that Megatron's own modules have, where it is another
	stack  []int64 // dimensions in front: layers, experts
	at     []int64 // ours in them
	global []int64 // its own shape
}

func (s stacking) ones() []int64 {
	ones := make([]int64, len(s.at))
	for i := range ones {
		ones[i] = 1
	}
	return ones
}

// stacking of one of our tensors. Layers are stacked where all are alike;
// experts always.
func (d *description) stacking(m *spec.Model, k megatron.Key) stacking {
	if len(d.shapes) == 0 {
		for _, t := range checkpoint.Expected(m) {
			d.shapes[t.Name] = t.Shape
		}
	}
	s := stacking{global: d.shapes[k.Name(k.Layer, k.Expert)]}
	s.key, s.also = megatron.DistKeys(m, k)
	if k.Layer != megatron.None {
		if alike(m) {
			s.stack, s.at = []int64{int64(m.NumLayers)}, []int64{int64(k.Layer)}
		} else {
			for _, key := range []*string{&s.key, &s.also} {
				*key = fmt.Sprintf("decoder.layers.%d.%s", k.Layer, strings.TrimPrefix(*key, "decoder.layers."))
			}
		}
	}
	if k.Expert != megatron.None {
		s.stack, s.at = append(s.stack, int64(m.Experts.Num)), append(s.at, int64(k.Expert))
	}
	return s
}

func alike(m *spec.Model) bool {
	if m.Experts == nil {
		return true
	}
	for i := range m.NumLayers {
		if !m.MixtureAt(i) {
			return false
		}
	}
	return true
}

// instance is an object as Python's dataclasses are pickled.
func instance(class string, state pickle.Value) *pickle.Object {
	return &pickle.Object{Class: class, New: true, State: state}
}

// metadata is the object of .metadata.
func (d *description) metadata(id string) *pickle.Object {
	described, locations := &pickle.Dict{}, &pickle.Dict{}
	put := func(key string, corner pickle.Value, where location) {
		index := instance(classes+"MetadataIndex", pickle.NewDict("fqn", key, "offset", corner, "index", nil))
		info := instance(storage+"_StorageInfo", pickle.NewDict("relative_path", where.file, "offset", where.offset, "length", where.length, "transform_descriptors", nil))
		locations.Pairs = append(locations.Pairs, pickle.Pair{Key: index, Value: info})
	}
	for _, key := range d.order {
		if where, ok := d.objects[key]; ok {
			described.Pairs = append(described.Pairs, pickle.Pair{Key: key, Value: instance(classes+"BytesStorageMetadata", &pickle.Dict{})})
			put(key, nil, where)
			continue
		}
		s := d.tensors[key]
		for _, name := range slices.DeleteFunc([]string{key, d.also[key]}, func(name string) bool { return name == "" }) {
			chunks := &pickle.List{}
			for _, c := range s.chunks {
				chunks.Items = append(chunks.Items, instance(classes+"ChunkStorageMetadata", pickle.NewDict("offsets", pickle.Size(c.box.From), "sizes", pickle.Size(c.box.Size))))
				put(name, pickle.Size(c.box.From), c.location)
			}
			described.Pairs = append(described.Pairs, pickle.Pair{Key: name, Value: instance(classes+"TensorStorageMetadata",
				pickle.NewDict("properties", properties(s.dtype), "size", pickle.Size(s.shape), "chunks", chunks))})
		}
	}
	meta := instance(classes+"StorageMeta", pickle.NewDict("checkpoint_id", id, "save_id", nil, "load_id", nil, "modules", &pickle.List{}))
	return instance(classes+"Metadata", pickle.NewDict("state_dict_metadata", described, "planner_data", nil, "storage_data", locations, "storage_meta", meta, "version", "1.0.0"))
}

// properties is TensorProperties: type, layout, no gradient, contiguous, not
// pinned; five of them, which every version of torch reads.
func properties(dtype string) *pickle.Object {
	layout := &pickle.Object{Class: "torch.serialization._get_layout", Args: []pickle.Value{"torch.strided"}}
	memory := &pickle.Object{Class: classes + "_MEM_FORMAT_ENCODING", Args: []pickle.Value{int64(0)}}
	return instance(classes+"TensorProperties", &pickle.Tuple{Items: []pickle.Value{pickle.NameOf(dtype), layout, false, memory, false}})
}

// common is what is not sharded.
func (w *writer) common() *pickle.Dict {
	d := pickle.NewDict("args", w.Namespace(), "checkpoint_version", 3.0, "iteration", w.State.Iteration)
	content := pickle.NewDict("singleton_local_shards", false, "chained_optim_avoid_prefix", true)
	if w.contents.Optimizer {
		d.Set("optimizer", w.optimizer())
		if w.Scheduler != nil {
			d.Set("opt_param_scheduler", w.Scheduler)
		}
		if w.Layout.DistributedOptimizer {
			content.Set("distrib_optim_sharding_type", fullyReshardable)
		}
	}
	d.Set("rerun_state_machine", pickle.NewDict(
		"mode", &pickle.Object{Class: rerun + "RerunMode", Args: []pickle.Value{"validate_results"}},
		"state", &pickle.Object{Class: rerun + "RerunState", Args: []pickle.Value{int64(0)}},
		"current_iteration", max(0, w.State.Iteration-1)))
	d.Set("num_floating_point_operations_so_far", w.FLOPs())
	d.Set("content_metadata", content)
	return d
}

const (
	fullyReshardable = "fully_reshardable"
	rerun            = "megatron.core.rerun_state_machine."
)

// optimizer is its unsharded part: parameter groups, the loss scale.
func (w *writer) optimizer() *pickle.Dict {
	var params []megatron.Local
	for _, t := range checkpoint.Expected(w.Model) {
		params = append(params, megatron.Local{Name: t.Name, Cut: megatron.Cut{Shape: t.Shape}, Expert: megatron.Split(t.Name).Expert != megatron.None})
	}
	groups := &pickle.List{}
	for _, one := range megatron.Groups(params, w.Layout.EP > 1) {
		for _, g := range one {
			groups.Items = append(groups.Items, w.ParamGroup(g, nil))
		}
	}
	inner := pickle.NewDict("param_groups", groups)
	if step := w.Step(); step != nil {
		inner.Set("state", pickle.NewDict("common_step", step))
	}
	if w.contents.DType == "F32" && !w.Layout.DistributedOptimizer {
		return inner
	}
	outer := pickle.NewDict("optimizer", inner)
	if scaler := w.GradScaler(); scaler != nil && w.contents.DType == "F16" {
		outer.Set("grad_scaler", scaler)
	}
	if w.Layout.DistributedOptimizer {
		outer.Set("param_state_sharding_type", fullyReshardable)
	}
	return outer
}

// rerunShard is a rank's state of Megatron's rerun machine when nothing is wrong.
func rerunShard() *pickle.Dict {
	return pickle.NewDict("rerun_requested", false, "checkpoint_requested", false, "restart_again_requested", false, "continue_requested", false,
		"error_injector_checkpoint", pickle.NewDict("error_injection_rate", int64(0),
			"error_injection_type", &pickle.Object{Class: rerun + "RerunDiagnostic", Args: []pickle.Value{"transient_error"}}, "injected_error_type", nil),
		"failed_validation_call", nil, "initial_result", nil, "suspicious_node", nil, "suspicious_device", nil, "data_iterator_checkpoints", nil,
		"large_value_counts", &pickle.Dict{}, "max_values", &pickle.Dict{})
}
