package torch

import (
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/megatron"
	"monotron/mpu"
)

// isCopy reports whether a parameter is the last stage's copy of tied embeddings, which
// Megatron keeps under the output layer's name.
func isCopy(p megatron.Local) bool {
	return p.Name == checkpoint.WordEmbeddings && p.Key != checkpoint.WordEmbeddings
}

func (s *source) addCopy(prefix string, parts []checkpoint.Part) {
	name := prefix + checkpoint.WordEmbeddings
	s.copies[name] = append(s.copies[name], parts...)
}

// Copies shows the tensors that the last stage has a second time, as they are there:
// tied embeddings, their main parameters and moments. It is closed with s.
func (s *source) Copies() checkpoint.Source {
	c := &copies{source: s}
	for _, t := range s.list {
		var boxes []mpu.Piece
		for _, part := range s.copies[t.Name] {
			boxes = append(boxes, part.Box)
		}
		used := 0
		if len(boxes) > 0 && checkpoint.Tile(t.Shape, boxes, &used) == nil { // all of it
			c.list = append(c.list, t)
		}
	}
	return c
}

type copies struct {
	*source
	list []checkpoint.Tensor
}

func (c *copies) Tensors() []checkpoint.Tensor { return c.list }

func (c *copies) Read(name string, box mpu.Piece, dst []byte) error {
	return checkpoint.ReadParts(c.source.copies[name], checkpoint.Width(c.index[name].DType), box, dst)
}
