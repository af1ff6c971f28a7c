package telemetry

import (
	"math"
	"slices"
)

// MixtureLayer is what one layer of experts reports of a step.
type MixtureLayer struct {
	Number int       // 0-based
	Losses []Value   // balancing losses of it, without their coefficients
	Tokens []float64 // that each expert was given, of all ranks
	Chosen float64   // choices that the router made; those that no expert was given were dropped
	Bytes  float64   // of tokens, results and gradients that went from rank to rank
}

// Balance is how evenly a layer's tokens fell on its experts, as shares of an even part: 1
// for all is perfect.
type Balance struct {
	Layer   int     `json:"layer"` // 0-based
	Least   Number  `json:"min"`
	Most    Number  `json:"max"`
	Spread  Number  `json:"std"`
	P50     Number  `json:"p50"`
	P75     Number  `json:"p75"`
	P90     Number  `json:"p90"`
	P95     Number  `json:"p95"`
	Starved []int   `json:"starved,omitempty"` // experts without a token
	Dropped Number  `json:"dropped,omitempty"` // choices that found their expert full
	Bytes   Number  `json:"bytes,omitempty"`   // that went from rank to rank
	Loss    []Value `json:"-"`

	Shares []Number `json:"shares,omitempty"` // of each expert, with log lines
}

// Balance of the layer.
func (l *MixtureLayer) Balance() Balance {
	b := Balance{Layer: l.Number, Loss: l.Losses, Bytes: Number(l.Bytes)}
	total := 0.0
	for i, n := range l.Tokens {
		total += n
		if n == 0 {
			b.Starved = append(b.Starved, i)
		}
	}
	b.Dropped = Number(max(0, l.Chosen-total))
	mean := max(1, total) / float64(len(l.Tokens))
	shares := make([]float64, len(l.Tokens))
	squares := 0.0
	for i, n := range l.Tokens {
		shares[i] = n / mean
		squares += (shares[i] - 1) * (shares[i] - 1)
	}
	for _, share := range shares {
		b.Shares = append(b.Shares, Number(math.Round(1000*share)/1000))
	}
	slices.Sort(shares)
	at := func(q float64) Number { return Number(shares[min(len(shares)-1, int(q*float64(len(shares))))]) }
	b.Least, b.Most, b.Spread = Number(shares[0]), Number(shares[len(shares)-1]), Number(math.Sqrt(squares/float64(len(shares))))
	b.P50, b.P75, b.P90, b.P95 = at(0.5), at(0.75), at(0.9), at(0.95)
	return b
}

// balances of a step's layers of experts.
func balances(s *Step) (all []Balance) {
	for i := range s.MoELayers {
		b := s.MoELayers[i].Balance()
		if s.Line == nil {
			b.Shares = nil // a line has some thousand numbers where there are many layers
		}
		all = append(all, b)
	}
	return all
}
