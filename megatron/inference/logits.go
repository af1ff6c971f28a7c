package inference

import (
	"fmt"
	"math"

	"monotron/internal/exitcode"
	"monotron/megatron/model"
	"monotron/mpu"
)

// logitRows is how many positions' logits exist at once.
const logitRows = 64

// Logits runs the model on prompt and shows each position's logits in order:
// f32 [vocab], the model's opinion of the token after that position. The slice
// is each's to keep.
func (g *Generator) Logits(prompt []int32, each func(position int, logits []float32) error) error {
	if err := g.CheckPrompt(prompt, 0); err != nil {
		return err
	}
	if g.Context == nil {
		all := mpu.Span{N: int64(len(prompt))}
		return g.full(prompt, mpu.Positions{all}, nil, func(p *model.Pass, hidden model.Tensor) error {
			return g.eachLogits(p, hidden, everyRank, 0, all, each)
		})
	}
	s := g.newSession(len(prompt), 1)
	defer s.close()
	shared := g.shared(len(prompt))
	if shared > 0 {
		if err := g.logitsOfShared(s, prompt[:shared], each); err != nil {
			return err
		}
	}
	b, rest := &batch{}, prompt[shared:]
	for i := range rest {
		b.wanted = append(b.wanted, int32(i))
	}
	return s.feed(b, [][]int32{rest}, func(first int, logits model.Tensor) error { return g.show(logits, shared+first, each) })
}

// logitsOfShared are those of positions that the ranks of Context share, stretch by stretch:
// the zig-zag's first half goes through the ranks, the second comes back.
func (g *Generator) logitsOfShared(s *session, prompt []int32, each func(position int, logits []float32) error) error {
	ranks := g.Context.Size()
	stretch := int64(len(prompt) / (2 * ranks))
	return s.share(prompt, func(p *model.Pass, hidden model.Tensor) error {
		for i := range 2 * ranks {
			owner, at := i, int64(0)
			if i >= ranks {
				owner, at = 2*ranks-1-i, stretch
			}
			if err := g.eachLogits(p, hidden, owner, at, mpu.Span{From: int64(i) * stretch, N: stretch}, each); err != nil {
				return err
			}
		}
		return nil
	})
}

// eachLogits shows those of a span of positions, which the owner has from row `first` on.
func (g *Generator) eachLogits(p *model.Pass, hidden model.Tensor, owner int, first int64, span mpu.Span, each func(position int, logits []float32) error) error {
	for at := int64(0); at < span.N; at += logitRows {
		rows := min(span.N-at, logitRows)
		err := g.logits(p, hidden, owner, first+at, rows, func(logits model.Tensor) error { return g.show(logits, int(span.From+at), each) })
		if err != nil {
			return err
		}
	}
	return nil
}

// show gives rows of logits one by one, the first of them that of a position.
func (g *Generator) show(logits model.Tensor, position int, each func(position int, logits []float32) error) error {
	rows, err := g.onHost(logits)
	if err != nil {
		return err
	}
	for i, row := range rows {
		if err := each(position+i, row); err != nil {
			return err
		}
	}
	return nil
}

// LogSoftmax turns logits into log-probabilities, in float64.
func LogSoftmax(logits []float32) []float64 {
	norm := logNorm(logits)
	out := make([]float64, len(logits))
	for i, x := range logits {
		out[i] = float64(x) - norm
	}
	return out
}

// logNorm is the log of the sum of exp(logits), in float64.
func logNorm(logits []float32) float64 {
	top := math.Inf(-1)
	for _, x := range logits {
		top = math.Max(top, float64(x))
	}
	sum := 0.0
	for _, x := range logits {
		sum += math.Exp(float64(x) - top)
	}
	return top + math.Log(sum)
}

// NotFinite is a logit that is NaN or infinite: the model's fault, whatever was asked.
type NotFinite struct {
	Token int
	Logit float32
}

func (n *NotFinite) Error() string {
	return fmt.Sprintf("the logit of token %d is %g: the weights have values that are not finite, or that are too large for their type", n.Token, n.Logit)
}

// checkLogits refuses numbers that no choice can rest on.
func checkLogits(logits []float32) error {
	for id, x := range logits {
		if math.IsNaN(float64(x)) || math.IsInf(float64(x), 0) {
			return exitcode.With(exitcode.BadData, &NotFinite{id, x})
		}
	}
	return nil
}
