package timeline

import (
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"monotron/megatron/schedule"
)

// mostBlocks is how often a line of text may be wrapped before boxes lose their
// numbers.
const mostBlocks = 6

// Text draws the chart in lines of at most width columns (from 60 on): a row a
// stage, the number of the micro-batch where a box begins, chunks as letters.
func (c *Chart) Text(width int) string {
	var b strings.Builder
	b.WriteString(c.title() + "\n" + c.summary() + "\n\n")
	c.writeStages(&b, width)
	b.WriteString("\n")
	margin := len(fmt.Sprint(len(c.Line.Spans)-1)) + 8 // "stage 12 |"
	rows := c.rows(width - margin)
	for from := 0; from < len(rows.cells[0]); from += rows.width {
		to := min(len(rows.cells[0]), from+rows.width)
		b.WriteString(strings.TrimRight(strings.Repeat(" ", margin-1)+c.axis(rows, from, to), " ") + "\n")
		for stage, cells := range rows.cells {
			fmt.Fprintf(&b, "stage %*d │%s\n", margin-8, stage, string(cells[from:to]))
		}
		b.WriteString("\n")
	}
	b.WriteString(c.legend(rows.dense))
	return b.String()
}

// writeStages is the table of stages.
func (c *Chart) writeStages(b *strings.Builder, width int) {
	head := fmt.Sprintf("%-8s %12s %16s %6s", "stage", "busy", "idle", "live")
	if c.Parts != nil {
		head += "  holds"
	}
	b.WriteString(head + "\n")
	for stage := range c.Line.Spans {
		row := fmt.Sprintf("%-8d %12s %16s %6d", stage, seconds(c.Line.Busy(stage)),
			fmt.Sprintf("%s %5.1f%%", seconds(c.Line.Idle(stage)), 100*c.idle(stage)), c.Line.Live[stage])
		if c.Parts != nil {
			row += "  " + c.holds(stage)
		}
		b.WriteString(clip(row, width) + "\n")
	}
}

// clip shortens a line that does not fit.
func clip(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:width-1]) + "…"
}

// textRows are the stages' boxes as columns.
type textRows struct {
	cells [][]rune
	width int     // columns a block
	scale float64 // columns a second
	dense bool    // boxes are narrower than a column
}

// rows scales time so that every box has space for its number, over several
// blocks if need be.
func (c *Chart) rows(width int) textRows {
	label := len(c.label(c.Line.Config.Chunks-1, c.Line.Config.Micros-1))
	r := textRows{width: width}
	if least := c.shortest(); least > 0 {
		r.scale = float64(label+1) / least
		if roomy := float64(label+4) / least; roomy*c.Line.End <= float64(width) {
			r.scale = roomy
		}
	}
	if r.scale*c.Line.End > float64(mostBlocks*width) {
		r.scale = float64(width) / c.Line.End
	}
	columns := max(1, int(math.Round(c.Line.End*r.scale)))
	r.dense = r.scale*c.shortest() < 1
	for _, spans := range c.Line.Spans {
		if r.dense {
			r.cells = append(r.cells, shares(spans, columns, r.scale))
			continue
		}
		cells := []rune(strings.Repeat("·", columns))
		for _, s := range spans {
			c.box(cells, s, r.scale)
		}
		r.cells = append(r.cells, cells)
	}
	return r
}

// box fills the columns of one forward or backward.
func (c *Chart) box(cells []rune, s schedule.Span, scale float64) {
	from, to := int(math.Round(s.From*scale)), min(len(cells), int(math.Round(s.To*scale)))
	fill := '─'
	if s.Kind == schedule.Backward {
		fill = '═'
	}
	for i := from; i < to; i++ {
		cells[i] = fill
	}
	if label := c.label(s.Chunk, s.Micro); len(label) < to-from {
		copy(cells[from:], []rune(label))
	}
}

// shares writes for each column what most of its time goes to, where boxes are too
// narrow to be distinguished.
func shares(spans []schedule.Span, columns int, scale float64) []rune {
	forward, backward := make([]float64, columns), make([]float64, columns)
	for _, s := range spans {
		to := forward
		if s.Kind == schedule.Backward {
			to = backward
		}
		for i := int(s.From * scale); i < columns && float64(i) < s.To*scale; i++ {
			to[i] += math.Min(s.To*scale, float64(i+1)) - math.Max(s.From*scale, float64(i))
		}
	}
	cells := make([]rune, columns)
	for i := range cells {
		switch f, b := forward[i], backward[i]; {
		case f+b < 0.5:
			cells[i] = '·'
		case b < 0.05:
			cells[i] = '─'
		case f < 0.05:
			cells[i] = '═'
		default:
			cells[i] = '≡'
		}
	}
	return cells
}

// label is a box's text: the micro-batch, after its chunk's letter where there
// are several.
func (c *Chart) label(chunk, micro int) string {
	if c.Line.Config.Chunks == 1 {
		return fmt.Sprint(micro)
	}
	return letter(chunk) + fmt.Sprint(micro)
}

func letter(chunk int) string {
	if chunk < 26 {
		return string(rune('a' + chunk))
	}
	return letter(chunk/26-1) + letter(chunk%26)
}

// axis writes times above a block, each where its column begins.
func (c *Chart) axis(r textRows, from, to int) string {
	line := []rune(strings.Repeat(" ", to-from+12))
	if r.scale == 0 {
		return ""
	}
	every := step(float64(r.width)/r.scale, 5)
	unit, name := unitOf(c.Line.End)
	free := 0
	for i := int(math.Ceil(float64(from) / r.scale / every * (1 - 1e-12))); ; i++ {
		at := int(math.Round(float64(i)*every*r.scale)) - from
		text := []rune(fmt.Sprintf("╷%.4g %s", float64(i)*every/unit, name))
		if at >= to-from || at+len(text) > to-from+1 {
			return string(line[:to-from+1])
		}
		if at >= free {
			copy(line[at:], text)
			free = at + len(text) + 1
		}
	}
}

func (c *Chart) legend(dense bool) string {
	parts := []string{"─ forward"}
	if !c.Line.Config.ForwardOnly {
		parts = append(parts, "═ backward")
	}
	if dense {
		return strings.Join(append(parts, "≡ both in turn", "· mostly idle"), "   ") + "\n"
	}
	parts = append(parts, "· idle", "numbers: micro-batches")
	if n := c.Line.Config.Chunks; n > 1 {
		parts = append(parts, fmt.Sprintf("letters a-%s: chunks", letter(n-1)))
	}
	return strings.Join(parts, "   ") + "\n"
}
