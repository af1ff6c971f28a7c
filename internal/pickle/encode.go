package pickle

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strings"

	"monotron/internal/exitcode"
)

// Encode writes v as a pickle of protocol 2, with the instructions that
// torch.load(weights_only=True) has. Storages need torch's container: Save.
func Encode(v Value) ([]byte, error) { return encode(v, maxPickle, nil) }

// encode writes at most about limit bytes: values that share parts are written
// out each time, which could continue for ever.
func encode(v Value, limit int, persistent func(*Storage) (key string, err error)) ([]byte, error) {
	e := &encoder{persistent: persistent, limit: limit}
	e.out.WriteString("\x80\x02")
	if err := e.value(v, 0); err != nil {
		return nil, exitcode.Errorf(exitcode.Internal, "pickle: %w", err)
	}
	e.out.WriteByte('.')
	return e.out.Bytes(), nil
}

type encoder struct {
	out        bytes.Buffer
	persistent func(*Storage) (string, error)
	limit      int
}

func (e *encoder) value(v Value, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("values are nested more than %d levels deep", maxDepth)
	}
	if e.out.Len() > e.limit {
		return fmt.Errorf("the pickle would have more than %d bytes", e.limit)
	}
	switch v := v.(type) {
	// Opcodes of protocol 2 for what Python has itself.
	case nil:
		e.out.WriteByte('N')
	case bool:
		e.out.WriteByte(map[bool]byte{true: 0x88, false: 0x89}[v])
	case int:
		e.integer(int64(v))
	case int64:
		e.integer(v)
	case *big.Int:
		e.long(v)
	case float64:
		e.out.WriteByte('G')
		_ = binary.Write(&e.out, binary.BigEndian, math.Float64bits(v)) // a Buffer never fails
	case string:
		e.text(v)
	case Bytes:
		e.bytes(v)
	// Globals, containers and objects, which recurse.
	case DType:
		e.global("torch." + string(v))
	case Class:
		e.global(string(v))
	case Size:
		return e.size(v)
	case *List:
		return e.list(v.Items, depth)
	case *Tuple:
		return e.tuple(v.Items, depth)
	case *Set:
		return e.set(v, depth)
	case *Dict:
		return e.dict(v, depth)
	case *Object:
		return e.object(v, depth)
	case *Tensor:
		return e.tensor(v)
	default:
		return fmt.Errorf("internal error: a value of type %T cannot be written; report this, and include the command line", v)
	}
	return nil
}

func (e *encoder) u32(code byte, n int) {
	e.out.WriteByte(code)
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], uint32(n))
	e.out.Write(b[:])
}

func (e *encoder) integer(n int64) {
	switch {
	case n >= 0 && n < 1<<8:
		e.out.Write([]byte{'K', byte(n)})
	case n >= 0 && n < 1<<16:
		e.out.Write([]byte{'M', byte(n), byte(n >> 8)})
	case n == int64(int32(n)):
		e.u32('J', int(int32(n)))
	default:
		e.long(big.NewInt(n))
	}
}

// long is LONG1: two's complement, little-endian, with a bit for the sign.
func (e *encoder) long(n *big.Int) {
	length := n.BitLen()/8 + 1
	b := make([]byte, length)
	if n.Sign() < 0 {
		n = new(big.Int).Add(n, new(big.Int).Lsh(big.NewInt(1), uint(8*length)))
	}
	n.FillBytes(b)
	e.out.Write([]byte{0x8a, byte(length)})
	for i := len(b) - 1; i >= 0; i-- {
		e.out.WriteByte(b[i])
	}
}

func (e *encoder) text(s string) {
	s = strings.ToValidUTF8(s, "\uFFFD")
	e.u32('X', len(s))
	e.out.WriteString(s)
}

// bytes are written as protocol 2 does: text whose characters are the bytes.
func (e *encoder) bytes(b Bytes) {
	if len(b) == 0 {
		e.global("__builtin__.bytes")
		e.out.WriteString(")R")
		return
	}
	e.global("_codecs.encode")
	runes := make([]rune, len(b))
	for i, c := range b {
		runes[i] = rune(c)
	}
	e.text(string(runes))
	e.text("latin1")
	e.out.WriteString("\x86R")
}

func (e *encoder) global(full string) {
	dot := strings.LastIndexByte(full, '.')
	e.out.WriteByte('c')
	e.out.WriteString(full[:max(0, dot)] + "\n" + full[dot+1:] + "\n")
}

func (e *encoder) size(s Size) error {
	e.global("torch.Size")
	items := make([]Value, len(s))
	for i, n := range s {
		items[i] = n
	}
	return e.call(func() error { return e.tuple([]Value{&Tuple{Items: items}}, 0) })
}

// call writes arguments and REDUCE.
func (e *encoder) call(args func() error) error {
	if err := args(); err != nil {
		return err
	}
	e.out.WriteByte('R')
	return nil
}

func (e *encoder) all(items []Value, depth int) error {
	for _, item := range items {
		if err := e.value(item, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (e *encoder) list(items []Value, depth int) error {
	e.out.WriteByte(']')
	if len(items) == 0 {
		return nil
	}
	e.out.WriteByte('(')
	if err := e.all(items, depth); err != nil {
		return err
	}
	e.out.WriteByte('e')
	return nil
}

func (e *encoder) tuple(items []Value, depth int) error {
	if len(items) == 0 {
		e.out.WriteByte(')')
		return nil
	}
	if len(items) > 3 {
		e.out.WriteByte('(')
	}
	if err := e.all(items, depth); err != nil {
		return err
	}
	e.out.WriteByte([]byte{0x85, 0x86, 0x87, 't'}[min(len(items)-1, 3)])
	return nil
}

func (e *encoder) set(s *Set, depth int) error {
	e.global(map[bool]string{false: "__builtin__.set", true: "__builtin__.frozenset"}[s.Frozen])
	return e.call(func() error { return e.tuple([]Value{&List{Items: s.Items}}, depth) })
}

func (e *encoder) dict(d *Dict, depth int) error {
	if d.Class == "" {
		e.out.WriteByte('}')
	} else {
		e.global(d.Class)
		e.out.WriteString(")R")
	}
	if len(d.Pairs) > 0 {
		e.out.WriteByte('(')
		for _, p := range d.Pairs {
			if err := e.all([]Value{p.Key, p.Value}, depth); err != nil {
				return err
			}
		}
		e.out.WriteByte('u')
	}
	return e.state(d.State, depth)
}

func (e *encoder) state(v Value, depth int) error {
	if v == nil {
		return nil
	}
	if err := e.value(v, depth+1); err != nil {
		return err
	}
	e.out.WriteByte('b')
	return nil
}

func (e *encoder) object(o *Object, depth int) error {
	args := o.Args
	if o.Class == "numpy.ndarray" {
		e.global("numpy._core.multiarray._reconstruct")
		args = []Value{Class("numpy.ndarray"), &Tuple{Items: []Value{int64(0)}}, Bytes("b")}
	} else if classes[o.Class] == 0 {
		return fmt.Errorf("class %q is not allowed in checkpoints", o.Class)
	} else {
		e.global(o.Class)
	}
	if err := e.tuple(args, depth); err != nil {
		return err
	}
	e.out.WriteByte(map[bool]byte{true: 0x81, false: 'R'}[o.New])
	return e.state(o.State, depth)
}

// storageClass is torch's name for storages of a type.
var storageClass = func() map[string]string {
	m := map[string]string{}
	for torch, ours := range storages {
		m[ours] = torch
	}
	return m
}()

func (e *encoder) tensor(t *Tensor) error {
	class, ok := storageClass[t.Storage.DType]
	if !ok || e.persistent == nil || t.DType != t.Storage.DType {
		return fmt.Errorf("a tensor of %s in a storage of %s cannot be written", t.DType, t.Storage.DType)
	}
	key, err := e.persistent(t.Storage)
	if err != nil {
		return err
	}
	// torch._utils._rebuild_tensor_v2((storage, class, key, device, elements), offset, size, strides,
	// requires_grad, hooks)
	e.global("torch._utils._rebuild_tensor_v2")
	e.out.WriteByte('(')
	e.out.WriteByte('(')
	e.text("storage")
	e.global("torch." + class)
	e.text(key)
	e.text("cpu")
	e.integer(t.Storage.Len)
	e.out.WriteString("tQ")
	e.integer(t.Offset)
	// Size and strides.
	for _, dims := range [][]int64{t.Shape, t.Strides} {
		items := make([]Value, len(dims))
		for i, n := range dims {
			items[i] = n
		}
		if err := e.tuple(items, 0); err != nil {
			return err
		}
	}
	// False, then an empty OrderedDict; the tuple closes, the call reduces.
	e.out.WriteByte(0x89)
	e.global("collections.OrderedDict")
	e.out.WriteString(")RtR")
	return nil
}
