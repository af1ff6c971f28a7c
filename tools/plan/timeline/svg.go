package timeline

import (
	"bytes"
	"fmt"
	"html"
	"math"

	"monotron/megatron/schedule"
)

// Measures of the picture, in pixels.
const (
	rowHeight = 34
	rowGap    = 8
	top       = 92 // title, summary, heads
	pad       = 28
	rightSide = 132 // idle and live
	axisSpace = 40
	legendBox = 14
	leastPlot = 840
	mostPlot  = 12000
	boxWidth  = 24 // wanted for the shortest box
)

// Ends of the colours' ranges: the first chunk is light, the last one dark.
var (
	forwardRange  = [2][3]float64{{174, 205, 246}, {32, 88, 168}}
	backwardRange = [2][3]float64{{252, 209, 150}, {196, 98, 16}}
)

const ink, faint = "#1d2733", "#66727f"

// SVG draws the chart as a picture: a row a stage, a box a forward or backward
// with its micro-batch, a shade a chunk, idle time hatched.
func (c *Chart) SVG() []byte {
	p := c.picture()
	p.frame()
	p.grid()
	for stage := range c.Line.Spans {
		p.row(stage)
	}
	p.legend()
	p.print("</svg>\n")
	return p.Bytes()
}

type picture struct {
	bytes.Buffer
	*Chart
	left, plot float64 // where time begins, and how wide it is
	scale      float64 // pixels a second
}

func (c *Chart) picture() *picture {
	p := &picture{Chart: c, left: 112, plot: leastPlot}
	if c.Parts != nil {
		longest := 0
		for stage := range c.Parts {
			longest = max(longest, len(c.shortStall(stage)))
		}
		p.left = math.Max(p.left, math.Min(360, pad+16+6.1*float64(longest)))
	}
	if least := c.shortest(); least > 0 {
		p.plot = math.Min(mostPlot, math.Max(leastPlot, c.Line.End/least*boxWidth))
	}
	if c.Line.End > 0 {
		p.scale = p.plot / c.Line.End
	}
	return p
}

func (p *picture) print(format string, a ...any) { fmt.Fprintf(p, format, a...) }

func (p *picture) text(x, y float64, style, text string) {
	p.print("<text x=\"%.1f\" y=\"%.1f\" %s>%s</text>\n", x, y, style, html.EscapeString(text))
}

func (p *picture) x(at float64) float64 { return p.left + at*p.scale }

func rowTop(stage int) float64 { return float64(top + stage*(rowHeight+rowGap)) }

func (p *picture) bottom() float64 { return rowTop(len(p.Line.Spans)) - rowGap }

// frame is the page with its title and the heads of the columns.
func (p *picture) frame() {
	width, height := p.left+p.plot+rightSide, p.bottom()+axisSpace+40
	p.print("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" "+
		"font-family=\"Inter, 'Segoe UI', Helvetica, Arial, 'DejaVu Sans', sans-serif\" font-size=\"12\">\n", width, height, width, height)
	p.print("<title>%s</title>\n", html.EscapeString(p.title()))
	p.print("<defs><pattern id=\"idle\" width=\"7\" height=\"7\" patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\">" +
		"<rect width=\"7\" height=\"7\" fill=\"#f3f5f7\"/><rect width=\"1.4\" height=\"7\" fill=\"#d9dfe5\"/></pattern></defs>\n")
	p.print("<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n")
	p.text(pad, 36, `font-size="19" font-weight="600" fill="`+ink+`"`, p.title())
	p.text(pad, 58, `font-size="12.5" fill="`+faint+`"`, p.summary())
	head := `font-size="11" fill="` + faint + `" text-anchor="end"`
	p.text(p.left+p.plot+58, top-10, head, "idle")
	p.text(p.left+p.plot+104, top-10, head, "live")
}

// grid is the axis below the rows and its lines behind them.
func (p *picture) grid() {
	every := step(p.Line.End, max(2, int(p.plot/110)))
	unit, name := unitOf(p.Line.End)
	y := p.bottom() + 8
	p.print("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#9aa5b1\"/>\n", p.left, y, p.left+p.plot, y)
	for i := 0; p.Line.End > 0 && float64(i)*every <= p.Line.End*(1+1e-9); i++ {
		x := p.x(float64(i) * every)
		p.print("<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#e4e8ec\"/>\n", x, top-6, x, y)
		p.print("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"#9aa5b1\"/>\n", x, y, x, y+5)
		text := fmt.Sprintf("%.4g", float64(i)*every/unit)
		if i == 0 {
			text += " " + name
		}
		p.text(x, y+19, `font-size="11" fill="`+faint+`" text-anchor="middle"`, text)
	}
}

// row is a stage: its name, idle behind, boxes in front, numbers at the end.
func (p *picture) row(stage int) {
	y := rowTop(stage)
	middle := y + rowHeight/2
	if stall := p.shortStall(stage); stall != "" {
		p.text(pad, middle-3, `font-weight="600" fill="`+ink+`"`, fmt.Sprintf("stage %d", stage))
		p.text(pad, middle+11, `font-size="10.5" fill="`+faint+`"`, clip(stall, 56))
	} else {
		p.text(pad, middle+4, `font-weight="600" fill="`+ink+`"`, fmt.Sprintf("stage %d", stage))
	}
	p.print("<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%d\" rx=\"4\" fill=\"url(#idle)\"/>\n", p.left, y, p.plot, rowHeight)
	for _, s := range p.Line.Spans[stage] {
		p.box(s, y)
	}
	number := `fill="` + ink + `" text-anchor="end"`
	p.text(p.left+p.plot+58, middle+4, number, fmt.Sprintf("%.1f%%", 100*p.idle(stage)))
	p.text(p.left+p.plot+104, middle+4, number, fmt.Sprint(p.Line.Live[stage]))
}

// box is one forward or backward; what it is stands in its tooltip.
func (p *picture) box(s schedule.Span, y float64) {
	x, width := p.x(s.From), (s.To-s.From)*p.scale
	fill, dark := p.colour(s.Kind, s.Chunk)
	gap := math.Min(1, width/4)
	p.print("<g><title>%s</title><rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" rx=\"%.1f\" fill=\"%s\"/>",
		p.tooltip(s), x+gap/2, y, width-gap, rowHeight, math.Min(3, width/5), fill)
	label := fmt.Sprint(s.Micro)
	size := math.Min(12.5, (width-3)/float64(len(label))/0.58)
	if size >= 7 {
		color := ink
		if dark {
			color = "#ffffff"
		}
		p.print("<text x=\"%.2f\" y=\"%.1f\" font-size=\"%.1f\" fill=\"%s\" text-anchor=\"middle\">%s</text>", x+width/2, y+rowHeight/2+size*0.36, size, color, label)
	}
	p.print("</g>\n")
}

func (p *picture) tooltip(s schedule.Span) string {
	what := "forward"
	if s.Kind == schedule.Backward {
		what = "backward"
	}
	if p.Line.Config.Chunks > 1 {
		what += fmt.Sprintf(" of chunk %d", s.Chunk)
	}
	return fmt.Sprintf("%s, micro-batch %d: %s to %s", what, s.Micro, seconds(s.From), seconds(s.To))
}

// colour is a chunk's shade, and whether text on it has to be light.
func (p *picture) colour(kind schedule.Kind, chunk int) (fill string, dark bool) {
	ends := forwardRange
	if kind == schedule.Backward {
		ends = backwardRange
	}
	at := 0.18
	if n := p.Line.Config.Chunks; n > 1 {
		at = float64(chunk) / float64(n-1)
	}
	var rgb [3]float64
	for i := range rgb {
		rgb[i] = ends[0][i] + (ends[1][i]-ends[0][i])*at
	}
	light := 0.299*rgb[0] + 0.587*rgb[1] + 0.114*rgb[2]
	return fmt.Sprintf("#%02x%02x%02x", int(rgb[0]), int(rgb[1]), int(rgb[2])), light < 140
}

// legend explains shades, hatching and the numbers.
func (p *picture) legend() {
	x, y := p.left, p.bottom()+axisSpace+18
	kinds := []schedule.Kind{schedule.Forward}
	if !p.Line.Config.ForwardOnly {
		kinds = append(kinds, schedule.Backward)
	}
	for _, kind := range kinds {
		for chunk := range min(p.Line.Config.Chunks, 12) {
			fill, _ := p.colour(kind, chunk)
			p.print("<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"3\" fill=\"%s\"/>\n", x, y-11, legendBox, legendBox, fill)
			x += legendBox + 2
		}
		text := map[schedule.Kind]string{schedule.Forward: "forward", schedule.Backward: "backward"}[kind]
		if n := p.Line.Config.Chunks; n > 1 {
			text += fmt.Sprintf(", chunks 0 to %d", n-1)
		}
		x = p.word(x+4, y, text)
	}
	p.print("<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"3\" fill=\"url(#idle)\" stroke=\"#d9dfe5\"/>\n", x, y-11, legendBox, legendBox)
	x = p.word(x+legendBox+6, y, "idle")
	p.word(x, y, "numbers: micro-batches; live: the most micro-batches in memory at once, counted per chunk")
}

// word writes a text of the legend and returns where the next one begins.
func (p *picture) word(x, y float64, text string) float64 {
	p.text(x, y, `fill="`+ink+`"`, text)
	return x + 6.4*float64(len(text)) + 26
}

// shortStall is holds with few letters: E, layers, L.
func (c *Chart) shortStall(stage int) string {
	if c.Parts == nil {
		return ""
	}
	// Parts are the stage's chunks, as "embedding 0-3 | 8-11 head".
	text := ""
	for i, part := range c.Parts[stage] {
		if i > 0 {
			text += " | "
		}
		words := ""
		if part.Embedding {
			words += " embedding"
		}
		if n := len(part.Layers); n == 1 {
			words += fmt.Sprintf(" %d", part.Layers[0])
		} else if n > 1 {
			words += fmt.Sprintf(" %d-%d", part.Layers[0], part.Layers[n-1])
		}
		if part.Head {
			words += " head"
		}
		if words == "" {
			words = " -"
		}
		text += words[1:]
	}
	return text
}
