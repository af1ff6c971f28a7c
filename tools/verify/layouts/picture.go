package layouts

import (
	"fmt"
	"image/color"
	"image/png"
	"io"

	stdfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"monotron/internal/exitcode"
)

// Sizes of the picture's table.
const (
	lineHigh  = 5.5 * vg.Millimeter
	pageEdge  = 5 * vg.Millimeter
	between   = 5 * vg.Millimeter
	barLength = 36 * vg.Millimeter
	dots      = 120 // an inch
)

var (
	ink   = color.RGBA{0x1d, 0x23, 0x2b, 255}
	quiet = color.RGBA{0x5b, 0x66, 0x73, 255}
	rule  = color.RGBA{0xdd, 0xe2, 0xe8, 255}
	holds = color.RGBA{0x14, 0x67, 0xc8, 255}
	fails = color.RGBA{0xc8, 0x1e, 0x1e, 255}
)

// style is how a cell is written.
type style struct {
	ink    color.Color
	weight stdfont.Weight
	right  bool // it ends at the column's right side
}

func (s style) text() draw.TextStyle {
	style := draw.TextStyle{Color: s.ink, Font: font.Font{Typeface: plot.DefaultFont.Typeface, Variant: "Sans", Weight: s.weight, Size: 10},
		YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
	if s.right {
		style.XAlign = text.XRight
	}
	return style
}

// line is one of the table: cells, and a bar behind them.
type line struct {
	cells []string
	style style
	share float64 // length of the bar, 1 is the bound; below 0: none
	head  bool
}

// WritePicture draws what WriteTable prints as a PNG picture; a bar is how much of its
// bounds a layout uses, at most all.
func (r *Report) WritePicture(w io.Writer, all bool) error {
	// Lines as text, and how wide each column is.
	lines := r.lines(all)
	widths := make([]vg.Length, len(lines[0].cells))
	for _, l := range lines {
		for i, cell := range l.cells {
			widths[i] = max(widths[i], l.style.text().Width(cell))
		}
	}
	wide := 2*pageEdge + barLength
	for _, width := range widths {
		wide += width + between
	}
	title, below := style{ink, stdfont.WeightBold, false}, style{ink: quiet}
	heading := fmt.Sprintf("%d layouts against one rank, %d differ", len(r.Rows), failing(r.Rows))
	wide = max(wide, 2*pageEdge+max(title.text().Width(heading), below.text().Width(r.said())))
	// Title, lines, and what was compared, from the top.
	canvas := vgimg.NewWith(vgimg.UseWH(wide, 2*pageEdge+lineHigh*vg.Length(len(lines)+3)), vgimg.UseDPI(dots))
	c := draw.New(canvas)
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	y := c.Max.Y - pageEdge - lineHigh/2
	c.FillText(title.text(), vg.Point{X: pageEdge, Y: y}, heading)
	y -= 1.5 * lineHigh
	for _, l := range lines {
		l.draw(&c, y, widths)
		y -= lineHigh
	}
	c.FillText(below.text(), vg.Point{X: pageEdge, Y: y - lineHigh/4}, r.said())
	small := png.Encoder{CompressionLevel: png.BestCompression}
	return exitcode.With(exitcode.IO, small.Encode(w, canvas.Image()))
}

// lines are the table: for each model a head and its layouts.
func (r *Report) lines(all bool) (lines []line) {
	number := func(x float64) string { return fmt.Sprintf("%.1e", x) }
	for _, rows := range r.models() {
		lines = append(lines, line{[]string{rows[0].Model, "ranks", "loss", "gradient", "weight", ""}, style{quiet, stdfont.WeightBold, false}, -1, true})
		shown := r.shown(rows, all)
		for _, row := range shown {
			l := line{[]string{row.Layout, fmt.Sprint(row.World), number(row.Loss), number(row.Grad), number(row.Weight), "ok"}, style{ink: ink}, min(1, r.share(row)), false}
			if !row.OK {
				l.cells[5], l.style.ink = "DIFFERS", fails
			}
			lines = append(lines, l)
		}
		if rest := len(rows) - len(shown); rest > 0 {
			lines = append(lines, line{[]string{fmt.Sprintf("and %d more, closer to one rank", rest), "", "", "", "", ""}, style{ink: quiet}, -1, false})
		}
	}
	return lines
}

// draw writes a line's cells, all but the first to the right of their columns.
func (l *line) draw(c *draw.Canvas, y vg.Length, widths []vg.Length) {
	x := pageEdge
	for i, cell := range l.cells {
		s, at := l.style, x
		if s.right = i > 0 && i < len(widths)-1; s.right {
			at += widths[i]
		}
		c.FillText(s.text(), vg.Point{X: at, Y: y}, cell)
		x += widths[i] + between
	}
	if l.head {
		c.FillText(l.style.text(), vg.Point{X: x, Y: y}, "share of its bounds")
	}
	if l.share >= 0 {
		bar(c, x, y, 1, rule)
		bar(c, x, y, l.share, l.style.bar())
	}
	c.StrokeLine2(draw.LineStyle{Color: rule, Width: vg.Points(0.5)}, pageEdge, y-lineHigh/2, x+barLength, y-lineHigh/2)
}

func (s style) bar() color.Color {
	if s.ink == fails {
		return fails
	}
	return holds
}

func bar(c *draw.Canvas, x, y vg.Length, share float64, ink color.Color) {
	long, half := vg.Length(share)*barLength, lineHigh/5
	c.FillPolygon(ink, []vg.Point{{X: x, Y: y - half}, {X: x + long, Y: y - half}, {X: x + long, Y: y + half}, {X: x, Y: y + half}})
}
