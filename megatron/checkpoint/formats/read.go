package formats

import (
	"fmt"
	"math"
	"strings"

	"monotron/fault"
	"monotron/mpu"
)

// WeightsOnly shows the values of src alone, with a state that only says which
// model they are.
func WeightsOnly(src Source) Source {
	return &weights{Select(src, func(t Tensor) bool { return strings.HasPrefix(t.Name, Model) })}
}

type weights struct{ Source }

func (w *weights) State() State {
	s := w.Source.State()
	s.Scheduler, s.Scaler, s.RNG = nil, nil, nil
	delete(s.Extra, ExtraAdamSteps)
	return s
}

// ReadAll reads a whole tensor.
func ReadAll(src Source, t Tensor) ([]byte, error) {
	raw := make([]byte, t.Bytes())
	return raw, src.Read(t.Name, Whole(t.Shape), raw)
}

// ReadFloat32 reads a whole float tensor as float32.
func ReadFloat32(src Source, t Tensor) ([]float32, error) {
	raw, err := ReadAll(src, t)
	if err != nil {
		return nil, err
	}
	if t.DType != "F32" {
		wide := make([]byte, 4*Volume(t.Shape))
		if err := Convert(wide, "F32", raw, t.DType); err != nil {
			return nil, err
		}
		raw = wide
	}
	values := make([]float32, len(raw)/4)
	for i := range values {
		values[i] = math.Float32frombits(le.Uint32(raw[4*i:]))
	}
	return values, nil
}

// ByRows reads a tensor in boxes of whole rows, front to back, of at most limit
// bytes where one row allows it. chunk is valid during the call.
func ByRows(src Source, t Tensor, limit int64, each func(box mpu.Piece, chunk []byte) error) error {
	width := Width(t.DType)
	var buf []byte
	return byRows(Whole(t.Shape), max(1, limit/width), func(sub mpu.Piece, _ int64) error {
		if n := sub.Len() * width; int64(len(buf)) < n {
			buf = make([]byte, n)
		}
		chunk := buf[:sub.Len()*width]
		if err := src.Read(t.Name, sub, chunk); err != nil {
			return err
		}
		return each(sub, chunk)
	})
}

// Finite shows src so that a float that is NaN or infinite is an error that
// names its tensor and place.
func Finite(src Source) Source {
	f := &finite{Source: src, types: map[string]string{}}
	for _, t := range src.Tensors() {
		f.types[t.Name] = t.DType
	}
	return f
}

// Origin is a Source that knows by which names its files call a tensor.
type Origin interface {
	// Origin names the files and tensors that a tensor is made of, for messages.
	Origin(name string) string
}

type finite struct {
	Source
	types map[string]string
}

func (f *finite) Read(name string, box mpu.Piece, dst []byte) error {
	if err := f.Source.Read(name, box, dst); err != nil {
		return err
	}
	if FirstNonFinite(f.types[name], dst) < 0 {
		return nil
	}
	count, first, err := f.count(name)
	if err != nil {
		return err
	}
	where := fmt.Sprintf("%s: tensor %q", f.Info().Path, name)
	if o, ok := f.Source.(Origin); ok {
		where = o.Origin(name)
	}
	return fault.Errorf(fault.BadData, "%s: %d values are NaN or infinite, the first at element %d; convert --allow-nan takes them all the same", where, count, first)
}

// count reads the whole tensor: a box says too little.
func (f *finite) count(name string) (count, first int64, err error) {
	for _, t := range f.Tensors() {
		if t.Name != name {
			continue
		}
		at, width := int64(0), Width(t.DType)
		err = ByRows(f.Source, t, 4<<20, func(_ mpu.Piece, raw []byte) error {
			for done := int64(0); ; {
				i := FirstNonFinite(t.DType, raw[done*width:])
				if i < 0 {
					break
				}
				if count++; count == 1 {
					first = at + done + i
				}
				done += i + 1
			}
			at += int64(len(raw)) / width
			return nil
		})
	}
	return count, first, err
}

// exponents are the bits that are all set in NaN and infinity: of one element,
// and of all elements of a word of eight bytes. Adding the lowest of them to such
// an element, and to no other, reaches the sign's place.
var exponents = map[string]struct {
	width           int64
	one             uint64
	word, low, sign uint64
}{
	"F64":  {8, 0x7ff << 52, 0x7ff << 52, 1 << 52, 1 << 63},
	"F32":  {4, 0xff << 23, 0x7f8000007f800000, 0x0080000000800000, 0x8000000080000000},
	"BF16": {2, 0xff << 7, 0x7f807f807f807f80, 0x0080008000800080, 0x8000800080008000},
	"F16":  {2, 0x1f << 10, 0x7c007c007c007c00, 0x0400040004000400, 0x8000800080008000},
}

// FirstNonFinite is the first element of raw that is no finite number; -1: none.
func FirstNonFinite(dtype string, raw []byte) int64 {
	e, ok := exponents[dtype]
	if !ok {
		return -1
	}
	const stride = 32
	at := 0
	for ; at+stride <= len(raw); at += stride {
		p := raw[at : at+stride : at+stride]
		found := (le.Uint64(p)&e.word + e.low) | (le.Uint64(p[8:])&e.word + e.low) | (le.Uint64(p[16:])&e.word + e.low) | (le.Uint64(p[24:])&e.word + e.low)
		if found&e.sign != 0 {
			break
		}
	}
	for ; at+int(e.width) <= len(raw); at += int(e.width) {
		var v uint64
		switch e.width {
		case 8:
			v = le.Uint64(raw[at:])
		case 4:
			v = uint64(le.Uint32(raw[at:]))
		default:
			v = uint64(le.Uint16(raw[at:]))
		}
		if v&e.one == e.one {
			return int64(at) / e.width
		}
	}
	return -1
}

// Check compares the values src has with those its model must have. Every
// missing, extra and misshapen one is named.
func Check(src Source) error {
	info := src.Info()
	have := map[string]Tensor{}
	for _, t := range src.Tensors() {
		have[t.Name] = t
	}
	var missing, extra, wrong []string
	want := map[string]bool{}
	for _, t := range Expected(info.Model) {
		want[Model+t.Name] = true
		h, ok := have[Model+t.Name]
		switch {
		case !ok:
			missing = append(missing, t.Name)
		case fmt.Sprint(h.Shape) != fmt.Sprint(t.Shape) && !paddedVocab(info, t, h):
			wrong = append(wrong, fmt.Sprintf("%s is %v, the model's settings make it %v", t.Name, h.Shape, t.Shape))
		}
	}
	for _, t := range src.Tensors() {
		if name, ok := strings.CutPrefix(t.Name, Model); ok && !want[t.Name] {
			extra = append(extra, name)
		}
	}
	var problems []string
	for _, p := range []struct {
		what string
		list []string
	}{{"missing", missing}, {"not of this model", extra}, {"of another shape", wrong}} {
		if len(p.list) > 0 {
			problems = append(problems, fmt.Sprintf("%d %s: %s", len(p.list), p.what, strings.Join(p.list, ", ")))
		}
	}
	if len(problems) > 0 {
		return fault.Errorf(fault.BadData, "%s: tensors do not fit the model: %s", info.Path, strings.Join(problems, "; "))
	}
	return nil
}

func paddedVocab(info Info, want, have Tensor) bool {
	return IsVocabulary(want.Name) && len(have.Shape) == 2 && have.Shape[1] == want.Shape[1] && have.Shape[0] == int64(info.Model.PaddedVocabSize)
}
