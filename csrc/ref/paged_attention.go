package ref

import (
	"math"

	"monotron/csrc/device"
)

// PagedAttention keeps the rows' keys and values, then makes each row's output from the
// blocks of its sequence; a tile of either part is a row.
func (b *backend) PagedAttention(a *device.PagedAttentionArgs) {
	p := &paged{PagedAttentionArgs: a, rows: ids(a.Rows), tables: ids(a.Tables), slopes: vector(a.Slopes), sinks: vector(a.Sinks), d: a.Q.Last()}
	b.pool.Run(a.Q.Shape[0], func(_ int, row int64) { p.keep(row) })
	b.pool.Run(a.Q.Shape[0], func(_ int, row int64) { p.attend(row) })
}

type paged struct {
	*device.PagedAttentionArgs
	rows, tables []int32
	slopes       []float64
	sinks        []float64
	d            int64
}

// block is where keys of a group begin that hold the position of row's sequence, and the
// index inside.
func (p *paged) block(row, position, group int64) (at, inside int64) {
	n := p.tables[int64(p.rows[2*row])*p.Tables.Shape[1]+position/device.PagedBlock]
	return int64(n)*p.Cache.Stride[0] + group*p.Cache.Stride[1], position % device.PagedBlock
}

func (p *paged) keep(row int64) {
	x := make([]float64, p.d)
	for g := range p.K.Shape[1] {
		at, inside := p.block(row, int64(p.rows[2*row+1]), g)
		load(x, p.K, row*p.K.Stride[0]+g*p.K.Stride[1])
		if !p.V.Given() {
			store(p.Cache, at+inside*p.d, x)
			continue
		}
		for j := range p.d {
			store(p.Cache, at+j*device.PagedBlock+inside, x[j:j+1])
		}
		load(x, p.V, row*p.V.Stride[0]+g*p.V.Stride[1])
		store(p.Cache, at+p.Cache.Stride[2]+inside*p.d, x)
	}
}

func (p *paged) attend(row int64) {
	// The keys that this row sees: [from, position], by window and chunk.
	position := int64(p.rows[2*row+1])
	from := int64(0)
	if p.Window >= 0 {
		from = max(0, position-int64(p.Window))
	}
	if chunk := int64(p.Chunk); chunk > 0 {
		from = max(from, position/chunk*chunk)
	}
	// Each query head: scores, softmax, with a sink that takes a share and has no value, and the sum of values.
	q, o, v := make([]float64, p.d), make([]float64, p.d), make([]float64, p.d)
	scores := make([]float64, position+1-from)
	for head := range p.Q.Shape[1] * p.Q.Shape[2] {
		g, h := head/p.Q.Shape[2], head%p.Q.Shape[2]
		load(q, p.Q, row*p.Q.Stride[0]+g*p.Q.Stride[1]+h*p.Q.Stride[2])
		for i := range scores {
			scores[i] = ruled(p.Rule, p.Cap, p.score(q, row, from+int64(i), g))
			if p.slopes != nil {
				scores[i] += bias(p.Slopes, p.slopes, head, from+int64(i), from+int64(i)-position)
			}
		}
		lse, factor := softmax(scores), 1.0
		if p.sinks != nil {
			factor = 1 / (1 + math.Exp(p.sinks[head]-lse))
		}
		clear(o)
		for i, x := range scores {
			x *= factor
			// Values lie behind the keys of a block, [PagedBlock, d]; where keys are values there is nothing behind.
			at, inside := p.block(row, from+int64(i), g)
			if p.V.Given() {
				at += p.Cache.Stride[2]
			}
			load(v, p.Cache, at+inside*p.d)
			axpy(o, x, v)
		}
		store(p.O, row*p.O.Stride[0]+g*p.O.Stride[1]+h*p.O.Stride[2], o)
	}
}

// score is scale·q·k of one key.
func (p *paged) score(q []float64, row, position, group int64) float64 {
	at, inside := p.block(row, position, group)
	key, sum := make([]float64, 1), 0.0
	first, step := at+inside, int64(device.PagedBlock)
	if !p.V.Given() {
		first, step = at+inside*p.d, 1
	}
	for j, x := range q {
		load(key, p.Cache, first+int64(j)*step)
		sum += x * key[0]
	}
	return float64(p.Scale) * sum
}
