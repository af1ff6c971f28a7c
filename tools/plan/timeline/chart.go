package timeline

import (
	"fmt"
	"math"
	"strings"

	"monotron/megatron/schedule"
)

// Chart is a timeline to be drawn.
type Chart struct {
	Line  *schedule.Timeline
	Parts [][]schedule.Part // [stage][chunk] what each holds; nil: not given
}

// title names the schedule.
func (c *Chart) title() string {
	s := c.Line.Config
	name := "1F1B"
	switch {
	case s.ForwardOnly:
		name = "Evaluation"
	case s.Name == schedule.GPipeName:
		name = "GPipe"
	case s.Chunks > 1:
		name = "Interleaved 1F1B"
	}
	text := fmt.Sprintf("%s: %s", name, count(s.Stages, "stage"))
	if s.Chunks > 1 {
		text += fmt.Sprintf(" of %s", count(s.Chunks, "chunk"))
	}
	text += ", " + count(s.Micros, "micro-batch")
	if s.Chunks > 1 {
		text += fmt.Sprintf(" in groups of %d", s.Group)
	}
	return text
}

// summary is the step's time and how much of it is lost.
func (c *Chart) summary() string {
	s := c.Line.Config
	return fmt.Sprintf("step %s, bubble %.1f%% of the work (equal stages: (p-1)/%s = %.1f%%)",
		seconds(c.Line.End), 100*c.Line.Bubble(), bubbleTerm(s), 100*s.BubbleFraction())
}

func bubbleTerm(s schedule.Config) string {
	if s.Chunks > 1 {
		return "(v m)"
	}
	return "m"
}

func count(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"):
		return fmt.Sprintf("%d %ses", n, what)
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// idle is the part of the step in which a stage waits.
func (c *Chart) idle(stage int) float64 {
	if c.Line.End == 0 {
		return 0
	}
	return c.Line.Idle(stage) / c.Line.End
}

// holds names what a stage has of the model, chunk by chunk.
func (c *Chart) holds(stage int) string {
	if c.Parts == nil {
		return ""
	}
	var chunks []string
	for _, part := range c.Parts[stage] {
		var words []string
		if part.Embedding {
			words = append(words, "embedding")
		}
		switch n := len(part.Layers); {
		case n == 1:
			words = append(words, fmt.Sprintf("layer %d", part.Layers[0]))
		case n > 1:
			words = append(words, fmt.Sprintf("layers %d-%d", part.Layers[0], part.Layers[n-1]))
		}
		if part.Head {
			words = append(words, "head")
		}
		if len(words) == 0 {
			words = []string{"nothing"}
		}
		chunks = append(chunks, strings.Join(words, " + "))
	}
	return strings.Join(chunks, " | ")
}

// shortest is the shortest span that takes time; 0: none does.
func (c *Chart) shortest() float64 {
	least := 0.0
	for _, spans := range c.Line.Spans {
		for _, s := range spans {
			if d := s.To - s.From; d > 0 && (least == 0 || d < least) {
				least = d
			}
		}
	}
	return least
}

// seconds writes a time with the unit that suits it.
func seconds(s float64) string {
	unit, name := unitOf(s)
	return fmt.Sprintf("%.4g %s", s/unit, name)
}

func unitOf(s float64) (unit float64, name string) {
	switch {
	case s >= 1:
		return 1, "s"
	case s >= 1e-3:
		return 1e-3, "ms"
	}
	return 1e-6, "µs"
}

// step is a round distance of about s/n: 1, 2 or 5 times a power of ten.
func step(s float64, n int) float64 {
	if s <= 0 || n < 1 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(s/float64(n))))
	for _, m := range []float64{1, 2, 5} {
		if power*m*float64(n) >= s*(1-1e-9) {
			return power * m
		}
	}
	return 10 * power
}
