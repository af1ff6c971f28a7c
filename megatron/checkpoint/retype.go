package checkpoint

import (
	"strings"

	"monotron/mpu"
)

// Retype is src with its weights in another type. Buffers, such as router biases, become F32,
// as in every run. If the checkpoint has moments, no bit is lost: if weights become narrower,
// their f32 values become main parameters; if they become f32, they are read from the main
// parameters.
func Retype(src Source, dtype string) Source {
	r := &retyped{Source: Cast(src, func(t Tensor) string {
		switch name, weight := strings.CutPrefix(t.Name, Model); {
		case !weight:
			return ""
		case IsBuffer(name):
			return "F32"
		}
		return dtype
	}), original: src, from: map[string]string{}}
	have := map[string]Tensor{}
	for _, t := range src.Tensors() {
		have[t.Name] = t
	}
	for _, t := range r.Source.Tensors() {
		name, value := strings.CutPrefix(t.Name, Model)
		main, isMain := strings.CutPrefix(t.Name, Main)
		_, hasMaster := have[Main+name]
		_, trained := have[ExpAvg+name]
		switch {
		case isMain && dtype == "F32" && have[Model+main].Name != "":
			continue // it is the value now
		case value && dtype == "F32" && hasMaster:
			r.from[t.Name] = Main + name
		case value && dtype != "F32" && have[t.Name].DType == "F32" && trained && !hasMaster:
			r.list = append(r.list, Tensor{Name: Main + name, DType: "F32", Shape: t.Shape})
			r.from[Main+name] = t.Name
		}
		r.list = append(r.list, t)
	}
	return r
}

// retyped is what Cast gives, with some tensors read under other names.
type retyped struct {
	Source
	original Source
	list     []Tensor
	from     map[string]string
}

func (r *retyped) Tensors() []Tensor { return r.list }

func (r *retyped) Read(name string, box mpu.Piece, dst []byte) error {
	if other, ok := r.from[name]; ok {
		return r.original.Read(other, box, dst)
	}
	return r.Source.Read(name, box, dst)
}
