package mpu

import (
	"fmt"

	"monotron/csrc/device"
)

// Memory-centric tiling (Rajbhandari et al., ZeRO-Infinity, arXiv 2104.07857, section 5.1.3): the
// weight of a linear layer that does not fit into memory uncut is n by n parameters of their own, its
// tiles, each of which comes and goes by itself. A product takes a row of them at a time, or a
// column, next to each other: so every element of an output, an input's gradient or a
// weight's gradient is one sum, made as without tiles.

// tile is a block of a weight: rows from..from+n of it, columns likewise.
type tile struct {
	rows, columns [2]int64 // {first, number}
	one           []*Param // the parameter, as hooks take it
}

func (t *tile) param() *Param { return t.one[0] }

// Tiles are those of params that are tiles, and the others.
func Tiles(params []*Param) (tiles, rest []*Param) {
	for _, p := range params {
		if p.Tile {
			tiles = append(tiles, p)
		} else {
			rest = append(rest, p)
		}
	}
	return tiles, rest
}

// tileUnit is what sides of tiles are multiples of.
const tileUnit = 16

// cut is n elements in up to `parts` stretches {first, number}.
func cut(n int64, parts int) (all [][2]int64) {
	each := (n + int64(parts) - 1) / int64(parts)
	each = (each + tileUnit - 1) / tileUnit * tileUnit
	for from := int64(0); from < n; from += each {
		all = append(all, [2]int64{from, min(each, n-from)})
	}
	return all
}

// tiled makes w [rows, columns] one of n by n tiles; 0: it stays uncut.
func (w *Param) tiled(n int) *Param {
	if n == 0 {
		return w
	}
	for i, rows := range cut(w.Shape[0], n) {
		var line []*tile
		for j, columns := range cut(w.Shape[1], n) {
			p := *w
			p.Shape, p.Pieces, p.Tile, p.Unit = []int64{rows[1], columns[1]}, nil, true, fmt.Sprintf("%s[%d,%d]", w.Name, i, j)
			for _, q := range w.Pieces {
				p.Pieces = append(p.Pieces, q.within(w.Shape[1], rows, columns)...)
			}
			line = append(line, &tile{rows, columns, []*Param{&p}})
		}
		w.tiles = append(w.tiles, line)
	}
	return w
}

// within is what of a piece, whose rows are all of a weight `width` wide, a tile has.
func (q Piece) within(width int64, rows, columns [2]int64) []Piece {
	first := q.Local / width // of the weight's rows
	from, to := max(first, rows[0]), min(first+q.Size[0], rows[0]+rows[1])
	if from >= to {
		return nil
	}
	return []Piece{{From: []int64{q.From[0] + from - first, q.From[1] + columns[0]}, Size: []int64{to - from, columns[1]}, Local: (from - rows[0]) * columns[1]}}
}

// byRows calls product for stretches of w's rows [n, columns], from, n, one after the other, each
// as long as it is here. What is not tiled is here already, or packed.
func (w *Param) byRows(d *device.Device, h *Hooks, dtype device.DType, product func(part device.Tensor, from, n int64)) error {
	if w.tiles == nil {
		return w.inStretches(d, dtype, 0, product)
	}
	for _, line := range w.tiles {
		if err := adjoin(d, h, dtype, line, 1, w.Shape[1], product); err != nil {
			return err
		}
	}
	return nil
}

// byColumns is byRows of stretches of columns [rows, n].
func (w *Param) byColumns(d *device.Device, h *Hooks, dtype device.DType, product func(part device.Tensor, from, n int64)) error {
	if w.tiles == nil {
		return w.inStretches(d, dtype, 1, product)
	}
	for j := range w.tiles[0] {
		var column []*tile
		for _, line := range w.tiles {
			column = append(column, line[j])
		}
		if err := adjoin(d, h, dtype, column, 0, w.Shape[0], product); err != nil {
			return err
		}
	}
	return nil
}

// adjoin puts tiles one after the other along a dimension, n long, for product.
func adjoin(d *device.Device, h *Hooks, dtype device.DType, tiles []*tile, along int, n int64, product func(part device.Tensor, from, n int64)) error {
	at := func(t *tile, dim int) [2]int64 { return [][2]int64{t.rows, t.columns}[dim] }
	across := at(tiles[0], 1-along)
	if len(tiles) == 1 {
		return h.Using(tiles[0].one, func() error {
			product(tiles[0].param().Value, across[0], across[1])
			return nil
		})
	}
	shape := [2]int64{n, n}
	shape[1-along] = across[1]
	part := d.Arena.Alloc(device.Parameters, dtype, shape[:]...)
	defer d.Arena.Free(part)
	for _, t := range tiles {
		err := h.Using(t.one, func() error {
			d.Copy(part.Slice(along, at(t, along)[0], at(t, along)[1]), t.param().Value)
			return nil
		})
		if err != nil {
			return err
		}
	}
	product(part, across[0], across[1])
	return nil
}

// addGradient is weightGradient of a weight that may be tiled.
func (w *Param) addGradient(d *device.Device, h *Hooks, dy, x device.Tensor) error {
	if w.tiles == nil {
		weightGradient(d, h.leaves().long(), w, dy, x)
		return nil
	}
	for _, line := range w.tiles {
		for _, t := range line {
			if t.param().Frozen {
				continue
			}
			if err := h.Adds(t.one); err != nil {
				return err
			}
			weightGradient(d, h.leaves().long(), t.param(), dy.Slice(1, t.rows[0], t.rows[1]), x.Slice(1, t.columns[0], t.columns[1]))
			if err := h.Final(t.one); err != nil {
				return err
			}
		}
	}
	return nil
}
