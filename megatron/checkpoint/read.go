package checkpoint

import (
	"fmt"
	"math"
	"strings"

	"monotron/internal/exitcode"
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

// ReadAll reads a complete tensor.
func ReadAll(src Source, t Tensor) ([]byte, error) {
	raw := make([]byte, t.Bytes())
	return raw, src.Read(t.Name, Uncut(t.Shape), raw)
}

// ReadFloat32 reads a complete float tensor as float32.
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

// ByRows reads a tensor in boxes of complete rows, front to back, of about limit
// bytes. chunk is valid during the call.
func ByRows(src Source, t Tensor, limit int64, each func(box mpu.Piece, chunk []byte) error) error {
	width := Width(t.DType)
	var buf []byte
	return byRows(Uncut(t.Shape), max(1, limit/width), func(sub mpu.Piece, _ int64) error {
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

// Check compares the values src has with those its model must have. Every
// missing, extra and misshapen one is named.
func Check(src Source) error {
	info := src.Info()
	have := map[string]Tensor{}
	for _, t := range src.Tensors() {
		have[t.Name] = t
	}
	// What the model needs.
	var missing, extra, wrong []string
	want := map[string]bool{}
	for _, t := range Expected(info.Model) {
		want[Model+t.Name] = true
		h, ok := have[Model+t.Name]
		switch {
		case !ok:
			missing = append(missing, t.Name)
		case fmt.Sprint(h.Shape) != fmt.Sprint(t.Shape) && !paddedVocab(info, t, h):
			wrong = append(wrong, fmt.Sprintf("%s has the shape %v, but the settings of the model require %v", t.Name, h.Shape, t.Shape))
		}
	}
	for _, t := range src.Tensors() {
		// What the source has and the model has not.
		adapted := len(info.Model.Adapters) > 0 && strings.HasPrefix(t.Name, Model+mpu.AdapterPrefix) // who reads them checks them
		if name, ok := strings.CutPrefix(t.Name, Model); ok && !want[t.Name] && !adapted {
			extra = append(extra, name)
		}
	}
	// One error for all.
	var problems []string
	for _, p := range []struct {
		what string
		list []string
	}{{"missing", missing}, {"not of this model", extra}, {"of a different shape", wrong}} {
		if len(p.list) > 0 {
			problems = append(problems, fmt.Sprintf("%d %s: %s", len(p.list), p.what, strings.Join(p.list, ", ")))
		}
	}
	if len(problems) > 0 {
		return exitcode.Errorf(exitcode.BadData, "%s: the tensors do not match the model: %s", info.Path, strings.Join(problems, "; "))
	}
	return nil
}

func paddedVocab(info Info, want, have Tensor) bool {
	return IsVocabulary(want.Name) && len(have.Shape) == 2 && have.Shape[1] == want.Shape[1] && have.Shape[0] == int64(info.Model.PaddedVocabSize)
}
