package dashboard

import (
	"image/color"
	"io"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"monotron/internal/exitcode"
)

// The size of a picture: a panel, of which up to two are side by side.
const panelWidth, panelHeight = 6 * vg.Inch, 3.75 * vg.Inch

// legendLine is the share of a panel's height that a name takes.
const legendLine = 0.07

// The page's colours of runs.
var palette = []color.RGBA{{0x14, 0x67, 0xc8, 255}, {0xc4, 0x46, 0x1b, 255}, {0x19, 0x80, 0x3d, 255}, {0x8a, 0x3f, 0xb8, 255}, {0x94, 0x62, 0x00, 255}, {0x0d, 0x7d, 0x86, 255}}

// WritePicture writes runs as a PNG picture: loss, gradient norm, learning rate and speed.
func WritePicture(w io.Writer, runs []*Run) error {
	panels := charts(runs)
	if len(panels) == 0 {
		return exitcode.Errorf(exitcode.BadData, "the run has no steps to draw")
	}
	columns := min(2, len(panels))
	rows := (len(panels) + columns - 1) / columns
	canvas := vgimg.New(vg.Length(columns)*panelWidth, vg.Length(rows)*panelHeight)
	full := draw.New(canvas)
	tiles := draw.Tiles{Rows: rows, Cols: columns, PadX: vg.Millimeter * 4, PadY: vg.Millimeter * 4,
		PadTop: vg.Millimeter * 3, PadBottom: vg.Millimeter * 3, PadLeft: vg.Millimeter * 3, PadRight: vg.Millimeter * 5}
	for i := range panels {
		p, err := panels[i].plot(len(runs))
		if err != nil {
			return exitcode.With(exitcode.Internal, err)
		}
		p.Draw(tiles.At(full, i%columns, i/columns))
	}
	_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(w)
	return exitcode.With(exitcode.IO, err)
}

// plot is one panel.
func (c *chart) plot(runs int) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text = c.title, "step"
	p.Title.Padding, p.Legend.Top = vg.Millimeter, true
	p.Add(plotter.NewGrid())
	named := 0
	for _, line := range c.curves {
		xy := make(plotter.XYs, len(line.x))
		for i := range xy {
			xy[i] = plotter.XY{X: line.x[i], Y: line.y[i]}
		}
		drawn, err := plotter.NewLine(xy)
		if err != nil {
			return nil, err
		}
		drawn.Color, drawn.Width = palette[line.run%len(palette)], vg.Points(1.3)
		if line.validation {
			drawn.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		}
		p.Add(drawn)
		if runs > 1 || line.validation {
			p.Legend.Add(shortened(line.name), drawn)
			named++
		}
	}
	p.Y.Max += (p.Y.Max - p.Y.Min) * legendLine * float64(named) // the legend is above the curves
	return p, nil
}

// shortened is a name's end, which fits a legend.
func shortened(name string) string {
	letters := []rune(name)
	if len(letters) <= 40 {
		return name
	}
	return "…" + string(letters[len(letters)-39:])
}
