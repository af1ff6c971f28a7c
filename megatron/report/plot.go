package report

import (
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/guptarohit/asciigraph"
	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	pixels "golang.org/x/image/math/fixed"

	"monotron/fault"
)

// Series is a curve; X rises.
type Series struct {
	Name string
	X, Y []float64
}

// LossSeries makes the curves "training" and "validation" of lm loss.
func LossSeries(steps []Entry) []Series {
	training, validation := Series{Name: "training loss"}, Series{Name: "validation loss"}
	for _, s := range steps {
		to := &training
		switch s.Validation {
		case "":
		case Validation:
			to = &validation
		default:
			continue
		}
		if loss, ok := s.Loss["lm loss"]; ok && !math.IsNaN(float64(loss)) {
			to.X, to.Y = append(to.X, float64(s.Iteration)), append(to.Y, float64(loss))
		}
	}
	return slices.DeleteFunc([]Series{training, validation}, func(s Series) bool { return len(s.X) == 0 })
}

// PlotTerminal draws curves with characters, width x height of them; in colour
// for a terminal.
func PlotTerminal(title string, width, height int, colour bool, series []Series) (string, error) {
	b, err := bounds(series)
	if err != nil {
		return "", err
	}
	rows := make([][]float64, len(series))
	var names []string
	for i, s := range series {
		rows[i] = resample(s, b.x0, b.x1, width)
		names = append(names, s.Name)
	}
	options := []asciigraph.Option{asciigraph.Height(height), asciigraph.Precision(2)}
	if !colour {
		title += ": " + strings.Join(names, ", ")
		return asciigraph.PlotMany(rows, append(options, asciigraph.Caption(title))...), nil
	}
	colors := make([]asciigraph.AnsiColor, len(series))
	copy(colors, []asciigraph.AnsiColor{asciigraph.Blue, asciigraph.Red, asciigraph.Green, asciigraph.Yellow})
	options = append(options, asciigraph.Caption(title), asciigraph.SeriesColors(colors...), asciigraph.SeriesLegends(names...))
	return asciigraph.PlotMany(rows, options...), nil
}

// resample reads a curve at n places between x0 and x1; beyond its ends it is
// not drawn.
func resample(s Series, x0, x1 float64, n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		x := x0 + (x1-x0)*float64(i)/float64(max(1, n-1))
		at, _ := slices.BinarySearch(s.X, x)
		switch {
		case at < len(s.X) && s.X[at] == x:
			out[i] = s.Y[at]
		case at == 0 || at == len(s.X):
			out[i] = math.NaN()
		default:
			share := (x - s.X[at-1]) / (s.X[at] - s.X[at-1])
			out[i] = s.Y[at-1] + share*(s.Y[at]-s.Y[at-1])
		}
	}
	return out
}

// box is the range of all curves.
type box struct{ x0, x1, y0, y1 float64 }

func bounds(series []Series) (box, error) {
	b := box{math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)}
	for _, s := range series {
		if len(s.X) != len(s.Y) || len(s.X) == 0 {
			return b, fault.Errorf(fault.BadData, "plot: curve %q has %d x and %d y values", s.Name, len(s.X), len(s.Y))
		}
		b.x0, b.x1 = min(b.x0, slices.Min(s.X)), max(b.x1, slices.Max(s.X))
		b.y0, b.y1 = min(b.y0, slices.Min(s.Y)), max(b.y1, slices.Max(s.Y))
	}
	if math.IsNaN(b.x1+b.y1) || math.IsInf(b.x1-b.x0, 0) || math.IsInf(b.y1-b.y0, 0) {
		return b, fault.Errorf(fault.BadData, "plot: there is nothing finite to draw")
	}
	if b.x0 == b.x1 {
		b.x1++
	}
	if b.y0 == b.y1 {
		b.y1++
	}
	return b, nil
}

// The picture: a frame with ticks, 900 x 540 pixels.
const (
	pictureWidth, pictureHeight = 900, 540
	left, right, top, bottom    = 70, 20, 40, 50
)

var (
	ink     = color.RGBA{40, 40, 40, 255}
	faint   = color.RGBA{225, 225, 225, 255}
	palette = []color.RGBA{{31, 119, 180, 255}, {214, 39, 40, 255}, {44, 160, 44, 255}, {255, 127, 14, 255}}
)

// PlotPNG draws curves as a PNG picture.
func PlotPNG(w io.Writer, title, xLabel string, series []Series) error {
	b, err := bounds(series)
	if err != nil {
		return err
	}
	p := &picture{RGBA: image.NewRGBA(image.Rect(0, 0, pictureWidth, pictureHeight))}
	draw.Draw(p, p.Bounds(), image.White, image.Point{}, draw.Src)
	p.frame(&b, title, xLabel)
	for i, s := range series {
		c := palette[i%len(palette)]
		p.curve(&b, s, c)
		y := top + 14 + 16*i
		p.line(pictureWidth-right-170, y-4, pictureWidth-right-150, y-4, c, 2)
		p.text(pictureWidth-right-144, y, s.Name)
	}
	if err := png.Encode(w, p); err != nil {
		return fault.Errorf(fault.IO, "plot: %w", err)
	}
	return nil
}

type picture struct{ *image.RGBA }

// at turns a point of the curves into a pixel.
func (b *box) at(x, y float64) (int, int) {
	px := left + (x-b.x0)/(b.x1-b.x0)*(pictureWidth-left-right)
	py := float64(pictureHeight-bottom) - (y-b.y0)/(b.y1-b.y0)*(pictureHeight-top-bottom)
	return int(math.Round(px)), int(math.Round(py))
}

func (p *picture) frame(b *box, title, xLabel string) {
	for _, x := range ticks(b.x0, b.x1, 8) {
		px, _ := b.at(x, b.y0)
		p.line(px, top, px, pictureHeight-bottom, faint, 1)
		p.text(px-12, pictureHeight-bottom+18, strconv.FormatFloat(x, 'g', 6, 64))
	}
	for _, y := range ticks(b.y0, b.y1, 7) {
		_, py := b.at(b.x0, y)
		p.line(left, py, pictureWidth-right, py, faint, 1)
		p.text(14, py+4, strconv.FormatFloat(y, 'g', 5, 64))
	}
	p.line(left, top, left, pictureHeight-bottom, ink, 1)
	p.line(left, pictureHeight-bottom, pictureWidth-right, pictureHeight-bottom, ink, 1)
	p.text(left, 24, title)
	p.text(pictureWidth/2-20, pictureHeight-12, xLabel)
}

// ticks are about n round numbers between a and b.
func ticks(a, b float64, n int) []float64 {
	step := math.Pow(10, math.Floor(math.Log10((b-a)/float64(n))))
	for _, factor := range []float64{1, 2, 5, 10} {
		if (b-a)/(step*factor) <= float64(n) {
			step *= factor
			break
		}
	}
	var out []float64
	for i := math.Ceil(a / step); i*step <= b && len(out) < 4*n; i++ {
		out = append(out, i*step)
	}
	return out
}

func (p *picture) curve(b *box, s Series, c color.RGBA) {
	px, py := b.at(s.X[0], s.Y[0])
	for i := range s.X {
		x, y := b.at(s.X[i], s.Y[i])
		p.line(px, py, x, y, c, 2)
		px, py = x, y
	}
}

// line joins two pixels, width pixels thick.
func (p *picture) line(x0, y0, x1, y1 int, c color.RGBA, width int) {
	steps := max(1, abs(x1-x0), abs(y1-y0))
	for i := range steps + 1 {
		x := x0 + (x1-x0)*i/steps
		y := y0 + (y1-y0)*i/steps
		for d := range width * width {
			p.SetRGBA(x+d%width, y+d/width, c)
		}
	}
}

func abs(n int) int { return max(n, -n) }

func (p *picture) text(x, y int, text string) {
	d := font.Drawer{Dst: p, Src: image.NewUniform(ink), Face: basicfont.Face7x13, Dot: pixels.P(x, y)}
	d.DrawString(text)
}
