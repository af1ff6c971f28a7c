package schedule

// wires number what stages send and what they receive: on the wire from one stage to another
// both ends count alike, and the wires' numbers follow each other.
type wires struct {
	stages int
	first  [2][]int // of sends, of receives: each wire's first number; at the end, their count
	given  [2][]int // the next number of each wire
}

func newWires(lists [][]Action) *wires {
	w := &wires{stages: len(lists)}
	for end := range w.first {
		w.first[end] = make([]int, len(lists)*len(lists)+1)
	}
	for stage, acts := range lists {
		for i := range acts {
			for k := range acts[i].Transfers {
				wire, end := w.of(stage, &acts[i].Transfers[k])
				w.first[end][wire+1]++
			}
		}
	}
	for end, first := range w.first {
		for wire := range len(first) - 1 {
			first[wire+1] += first[wire]
		}
		w.given[end] = append(w.given[end], first...)
	}
	return w
}

// of is a stage's transfer: its wire, and whether it is what is sent (0) or received (1).
func (w *wires) of(stage int, t *Transfer) (wire, end int) {
	if t.Send {
		return stage*w.stages + t.Peer, 0
	}
	return t.Peer*w.stages + stage, 1
}

// number is that of the next transfer on its wire.
func (w *wires) number(stage int, t *Transfer) (n, end int) {
	wire, end := w.of(stage, t)
	n = w.given[end][wire]
	w.given[end][wire]++
	return n, end
}

// total is how many are sent.
func (w *wires) total() int { return w.first[0][w.stages*w.stages] }
