package all

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/xxh3"

	"monotron/csrc/device"
	"monotron/internal/exitcode"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/hf"
	"monotron/megatron/checkpoint/native"
	"monotron/mpu"
)

// Base says where the weights are that a checkpoint of ours does not hold, which has an adapter alone. It is
// State.Extra's checkpoint.ExtraBase.
type Base struct {
	Folder   string `json:"folder"` // absolute
	Step     int64  `json:"step"`   // of a save folder; -1: it is none
	Quantize string `json:"quantize,omitempty"`
	Double   bool   `json:"double_quant,omitempty"`
	Sum      string `json:"sum"` // of the contents of the weights' files
}

// NewBase is the base in dir, whose linear layers are rounded as quantize says.
func NewBase(dir string, step int64, quantize string, double bool) (b *Base, err error) {
	b = &Base{Step: -1, Quantize: quantize, Double: double}
	if b.Folder, err = filepath.Abs(dir); err != nil {
		return nil, exitcode.With(exitcode.IO, err)
	}
	src, err := Open(dir, checkpoint.OpenOptions{Step: step})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if src.Info().Format == checkpoint.Native {
		b.Step = src.State().Iteration
	}
	b.Sum, err = knownSum(src)
	return b, err
}

// mostAtOnce is how many bytes of a tensor are hashed at once.
const mostAtOnce = 1 << 20

// sumOf is a hash of the names, types, shapes and bytes of a model's weights. All of them are read: who opens a base
// reads its weights next, and finds the files in memory.
func sumOf(src checkpoint.Source) (string, error) {
	h := xxh3.New()
	list := slices.Clone(src.Tensors())
	slices.SortFunc(list, func(a, b checkpoint.Tensor) int { return strings.Compare(a.Name, b.Name) })
	for _, t := range list {
		if !strings.HasPrefix(t.Name, checkpoint.Model) || strings.HasPrefix(t.Name, checkpoint.Model+mpu.AdapterPrefix) {
			continue
		}
		fmt.Fprintln(h, t.Name, t.DType, t.Shape)
		err := checkpoint.ByRows(src, t, mostAtOnce, func(_ mpu.Piece, chunk []byte) error {
			_, err := h.Write(chunk)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	sum := h.Sum128().Bytes()
	return hex.EncodeToString(sum[:]), nil
}

// sums are those that this process has found, by path, and sizes and times of the files: the ranks of a process
// have the same base.
var sums sync.Map

// knownSum is sumOf, found once as long as the checkpoint's files stay as they are.
func knownSum(src checkpoint.Source) (string, error) {
	key := ""
	err := filepath.WalkDir(src.Info().Path, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		st, err := os.Stat(path) // of a link's target
		if err == nil {
			key += fmt.Sprintln(path, st.Size(), st.ModTime().UnixNano())
		}
		return err
	})
	if err != nil {
		return "", exitcode.With(exitcode.IO, err)
	}
	once, _ := sums.LoadOrStore(key, sync.OnceValues(func() (string, error) { return sumOf(src) }))
	return once.(func() (string, error))()
}

// baseOf is the base that a checkpoint of ours needs; nil: it holds all weights.
func baseOf(where string, s checkpoint.State) (*Base, error) {
	raw := s.Extra[checkpoint.ExtraBase]
	if len(raw) == 0 {
		return nil, nil
	}
	b := &Base{}
	if err := json.Unmarshal(raw, b); err != nil || b.Folder == "" {
		return nil, exitcode.Errorf(exitcode.BadData, "%s: the stored path and checksum of the base model cannot be read: %w", where, errors.Join(err, fmt.Errorf("%.80s", raw)))
	}
	return b, nil
}

// open opens the base, and refuses other weights.
func (b *Base) open(where string, o checkpoint.OpenOptions) (checkpoint.Source, error) {
	if slices.Contains(o.Over, where) { // a folder that was moved to its base's path
		return nil, exitcode.Errorf(exitcode.BadData, "%s contains only an adapter, and names itself as the base model; restore the weights on which the adapter was trained", where)
	}
	o.Step, o.Over = b.Step, append(slices.Clone(o.Over), where)
	src, err := Open(b.Folder, o)
	if err != nil {
		return nil, fmt.Errorf("%s contains only an adapter, and its base model cannot be read: %w", where, err)
	}
	plain, err := Open(b.Folder, checkpoint.OpenOptions{Step: b.Step, Over: o.Over})
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	sum, err := knownSum(plain)
	if err = errors.Join(err, plain.Close()); err == nil && sum != b.Sum {
		err = exitcode.Errorf(exitcode.BadData, "%s contains only an adapter, and %s no longer has the weights on which the adapter was trained; restore these weights", where, b.Folder)
	}
	if err == nil && b.Quantize != "" {
		var rounded checkpoint.Source
		if rounded, err = hf.Quantized(src, b.Quantize, b.Double); err == nil {
			return rounded, nil
		}
	}
	if err != nil {
		return nil, errors.Join(err, src.Close())
	}
	return src, nil
}

// completed shows a checkpoint of ours with the weights of its base; one that holds all is src itself.
func completed(src checkpoint.Source, o checkpoint.OpenOptions) (checkpoint.Source, error) {
	where := src.Info().Path
	b, err := baseOf(where, src.State())
	if b == nil || err != nil {
		return src, err
	}
	base, err := b.open(where, o)
	if err != nil {
		return nil, err
	}
	c := &complete{Source: src, base: base, of: map[string]checkpoint.Source{}, list: slices.Clone(src.Tensors())}
	dtype := ""
	for _, t := range c.list {
		c.of[t.Name] = src
		if strings.HasPrefix(t.Name, checkpoint.Model) {
			dtype = t.DType
		}
	}
	weights := checkpoint.Cast(base, func(checkpoint.Tensor) string { return dtype })
	for _, t := range weights.Tensors() {
		if strings.HasPrefix(t.Name, checkpoint.Model) && c.of[t.Name] == nil && !strings.HasPrefix(t.Name, checkpoint.Model+mpu.AdapterPrefix) {
			c.of[t.Name], c.list = weights, append(c.list, t)
		}
	}
	return c, nil
}

// complete is a checkpoint of an adapter with its base.
type complete struct {
	checkpoint.Source
	base checkpoint.Source
	of   map[string]checkpoint.Source
	list []checkpoint.Tensor
}

// Tensors lists those of both.
func (c *complete) Tensors() []checkpoint.Tensor { return c.list }

// Read reads from whichever has the tensor.
func (c *complete) Read(name string, box mpu.Piece, dst []byte) error {
	src := c.of[name]
	if src == nil {
		src = c.Source
	}
	return src.Read(name, box, dst)
}

// Close closes both.
func (c *complete) Close() error { return errors.Join(c.base.Close(), c.Source.Close()) }

// LoadNative is native.Load, also of a checkpoint whose weights are in part those of its base.
func LoadNative(dir string, step int64, tensors []mpu.Stored, dev *device.Device, o native.LoadOptions) (native.State, native.Report, error) {
	f, err := native.OpenSound(dir, step)
	if err != nil {
		return native.Load(dir, step, tensors, dev, o) // which says more
	}
	b, err := baseOf(f.Path, f.Manifest.State)
	iteration := f.Manifest.State.Iteration
	f.Close()
	if b == nil && err == nil {
		return native.Load(dir, step, tensors, dev, o)
	}
	if err != nil {
		return native.State{}, native.Report{}, err
	}
	src, err := OpenAs(checkpoint.Native, dir, checkpoint.OpenOptions{Step: iteration})
	if err != nil {
		return native.State{}, native.Report{}, err
	}
	defer src.Close()
	return native.LoadSource(src, tensors, dev, o)
}
