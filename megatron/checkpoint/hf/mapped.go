package hf

import (
	"fmt"
	"slices"
	"strings"

	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/mpu"
)

// Store holds tensors under Hugging Face's names, whatever their files call
// them. Methods may be called from several goroutines.
type Store interface {
	// Info returns dtype and shape as stored.
	Info(name string) (dtype string, shape []int64, ok bool)
	// ReadAt fills dst with the tensor's row-major bytes from at.
	ReadAt(name string, dst []byte, at int64) error
	// Where names the file and the tensor in it, for messages.
	Where(name string) string
}

// Kind is one sort of tensors of a checkpoint: values, or moments of the optimizer.
type Kind struct {
	Prefix string // of native names
	Store  Store
}

// Mapped is a Source whose tensors lie in Stores under Hugging Face's names.
type Mapped struct {
	info    checkpoint.Info
	state   checkpoint.State
	mapping *Mapping
	stores  map[string]Store // by prefix
	tensors []checkpoint.Tensor
	dtypes  map[string]string // by native name
	close   func() error
}

// NewMapped checks that every kind has every tensor of mp in its shape, and
// lists them. close may be nil.
func NewMapped(info checkpoint.Info, state checkpoint.State, mp *Mapping, kinds []Kind, close func() error) (*Mapped, error) {
	s := &Mapped{info: info, state: state, mapping: mp, stores: map[string]Store{}, dtypes: map[string]string{}, close: close}
	var wrong []error
	for _, k := range kinds {
		s.stores[k.Prefix] = k.Store
		wrong = append(wrong, s.add(k)...)
	}
	if len(wrong) > 0 {
		return nil, exitcode.With(exitcode.BadData, Some(wrong))
	}
	return s, nil
}

// add lists the tensors of a kind and returns all that is wrong with them.
func (s *Mapped) add(k Kind) (wrong []error) {
	bad := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	for i := range s.mapping.rules {
		r := &s.mapping.rules[i]
		name := k.Prefix + r.global
		for _, src := range r.sources {
			dtype, shape, ok := k.Store.Info(src.Name)
			switch {
			case !ok:
				bad("%s: tensor %q is missing", s.info.Path, src.Name)
			case !slices.Equal(shape, src.Shape):
				bad("%s has the shape %v, but the model requires the shape %v", k.Store.Where(src.Name), shape, src.Shape)
			case checkpoint.Width(dtype) == 0 || !isFloat(dtype):
				bad("%s is %s; weights must be F32, BF16, F16 or F64", k.Store.Where(src.Name), dtype)
			case s.dtypes[name] != "" && s.dtypes[name] != dtype:
				bad("%s is %s, but it is a part of %s, whose first part is %s; write all parts in the same type", k.Store.Where(src.Name), dtype, r.global, s.dtypes[name])
			}
			s.dtypes[name] = dtype
		}
		s.tensors = append(s.tensors, checkpoint.Tensor{Name: name, DType: s.dtypes[name], Shape: slices.Clone(r.shape)})
	}
	return wrong
}

func isFloat(dtype string) bool {
	return dtype == "F32" || dtype == "BF16" || dtype == "F16" || dtype == "F64"
}

// Info is what the checkpoint says of itself.
func (s *Mapped) Info() checkpoint.Info { return s.info }

// State is what the checkpoint keeps in addition to tensors.
func (s *Mapped) State() checkpoint.State { return s.state }

// Tensors lists every kind in the order of the model.
func (s *Mapped) Tensors() []checkpoint.Tensor { return s.tensors }

// Read fills dst with a box of a tensor.
func (s *Mapped) Read(name string, box mpu.Piece, dst []byte) error {
	return s.ReadWatched(name, box, dst, func([]byte) {})
}

// ReadWatched is Read that shows what it reads.
func (s *Mapped) ReadWatched(name string, box mpu.Piece, dst []byte, see func(raw []byte)) error {
	kind, global := s.split(name)
	dtype, ok := s.dtypes[name]
	if !ok {
		return exitcode.Errorf(exitcode.Internal, "internal error: %s has no tensor %q; report this, and include the command line", s.info.Path, name)
	}
	return s.mapping.Gather(dst, global, box.From, box.Size, checkpoint.Width(dtype), func(name string, dst []byte, at int64) error {
		if err := kind.ReadAt(name, dst, at); err != nil {
			return err
		}
		see(dst)
		return nil
	})
}

func (s *Mapped) split(name string) (Store, string) {
	for prefix, store := range s.stores {
		if global, ok := strings.CutPrefix(name, prefix); ok {
			return store, global
		}
	}
	return nil, name
}

// Origin says where a native tensor comes from, for messages.
func (s *Mapped) Origin(name string) string {
	store, global := s.split(name)
	i, ok := s.mapping.byGlobal[global]
	if !ok || store == nil {
		return fmt.Sprintf("%s: %s", s.info.Path, name)
	}
	var parts []string
	for _, src := range s.mapping.rules[i].sources {
		parts = append(parts, store.Where(src.Name))
	}
	return strings.Join(parts, ", ")
}

// Close closes the files.
func (s *Mapped) Close() error {
	if s.close == nil {
		return nil
	}
	return s.close()
}
