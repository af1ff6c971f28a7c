package torch

import (
	"monotron/megatron/formats"
	"monotron/megatron/formats/megatron"
	"monotron/mpu"
)

// isCopy tells whether a parameter is the last stage's copy of tied embeddings, which
// Megatron keeps under the output layer's name.
func isCopy(p megatron.Local) bool {
	return p.Name == formats.WordEmbeddings && p.Key != formats.WordEmbeddings
}

func (s *source) addCopy(prefix string, parts []formats.Part) {
	name := prefix + formats.WordEmbeddings
	s.copies[name] = append(s.copies[name], parts...)
}

// Copies shows the tensors that the last stage has a second time, as they are there:
// tied embeddings, their main parameters and moments. It is closed with s.
func (s *source) Copies() formats.Source {
	c := &copies{source: s}
	for _, t := range s.list {
		var boxes []mpu.Piece
		for _, part := range s.copies[t.Name] {
			boxes = append(boxes, part.Box)
		}
		used := 0
		if len(boxes) > 0 && formats.Tile(t.Shape, boxes, &used) == nil { // all of it
			c.list = append(c.list, t)
		}
	}
	return c
}

type copies struct {
	*source
	list []formats.Tensor
}

func (c *copies) Tensors() []formats.Tensor { return c.list }

func (c *copies) Read(name string, box mpu.Piece, dst []byte) error {
	return formats.ReadParts(c.source.copies[name], formats.Width(c.index[name].DType), box, dst)
}
