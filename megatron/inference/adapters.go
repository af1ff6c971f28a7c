package inference

import (
	"fmt"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/checkpoint/peft"
	"monotron/megatron/model"
	"monotron/megatron/optimizer"
	"monotron/mpu"
)

// Adapter is a low-rank adapter in PEFT's files that requests may ask for instead of the model as it is.
type Adapter struct{ Name, Dir string }

// bases are the editions of the model without adapters; those with one come behind them.
const bases = 2

// editionsOf are those that l serves: itself, an entry for a newer iteration, and l with each of the
// adapters.
func (l *Loaded) editionsOf(adapters []Adapter) (editions, error) {
	e := editions{list: make([]*Loaded, bases)}
	e.list[0] = l
	for _, a := range adapters {
		adapted, err := l.adapted(a)
		if err != nil {
			return e, fmt.Errorf("adapter %s: %w", a.Name, err)
		}
		e.list = append(e.list, adapted)
	}
	return e, nil
}

// with is l with the adapter of a folder.
func (l *Loaded) with(dir string) (*Loaded, error) {
	adapted, err := l.adapted(Adapter{Name: dir, Dir: dir})
	if err != nil {
		return nil, fmt.Errorf("--adapter %s: %w", dir, err)
	}
	adapted.Notes = append(slices.Clone(l.Notes), fmt.Sprintf("added the adapter of %s: %d modules", dir, len(adapted.Model.Adapters)))
	return adapted, nil
}

// adapted is the same part of the same model with an adapter. Its weights are l's, in the same memory;
// the adapter alone is added, so that answers of l do not change.
func (l *Loaded) adapted(a Adapter) (*Loaded, error) {
	switch {
	case len(l.Model.Adapters) > 0:
		return nil, exitcode.Errorf(exitcode.Usage, "the model already has an adapter; merge it first with monotron convert --to hf")
	case l.Model.Experts != nil:
		return nil, exitcode.Errorf(exitcode.Usage, "the model has experts, and adapters of such models cannot be served; merge the adapter with monotron convert --adapter")
	}
	f, err := peft.Open(a.Dir, &l.Model, "")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	t := *l
	t.Model.Adapters = f.Adapters // of weights that f has in full the values alone differ
	t.part.Model = &t.Model
	t.Weights = strings.TrimPrefix(l.Weights+"+"+a.Name, "+")
	stage, err := model.NewStage(t.Device, t.part, t.parallel)
	if err != nil {
		return nil, err
	}
	t.Stages = []*model.Stage{stage}
	own, err := t.share(l, f.Holds)
	if err != nil {
		return nil, err
	}
	var wanted []mpu.Stored
	for _, p := range own {
		wanted = append(wanted, p.Stored(optimizer.StoredModel, p.Value, 0, p.Owner)...)
	}
	if _, _, err = native.LoadSource(checkpoint.Finite(f), wanted, t.Device, native.LoadOptions{Convert: true}); err != nil {
		return nil, err
	}
	mpu.TurnAdapters(t.Device, own)
	return &t, t.Device.Err()
}

// share gives the parameters of t the values of l's, and those of its adapter, which it returns, memory
// of their own; so do weights that the adapter holds in full.
func (t *Loaded) share(l *Loaded, holds func(name string) bool) (own []*mpu.Param, err error) {
	values := map[string]*mpu.Param{}
	for _, p := range model.ParamsOf(l.Stages) {
		values[p.Name] = p
	}
	for _, p := range model.ParamsOf(t.Stages) {
		switch base := values[p.Name]; {
		case model.IsAdapter(p.Name) || holds(p.Name):
			own = append(own, p)
		case base == nil || !slices.Equal(base.Shape, p.Shape):
			return nil, exitcode.Errorf(exitcode.Internal, "internal error: the model has no parameter %s; report this, and include the command line", p.Name)
		default:
			p.Value = base.Value
		}
	}
	mpu.Allocate(t.Device, own, t.DType, false)
	for _, s := range t.Stages {
		s.Prepare(t.MaxContext)
	}
	return own, nil
}
