package layouts

import (
	"bytes"
	"image/color"
	"image/png"
	"testing"
)

// Claim: the picture has a bar for each layout, as long as its share of the bounds, and one
// that differs in its own colour.
func TestPicture(t *testing.T) {
	drawn := func(rows ...Row) map[color.RGBA]int {
		r := &Report{Precision: "f32", Bounds: Bounds{Loss: 1e-5, Grad: 1e-4, Weight: 1e-3}, Rows: rows}
		var b bytes.Buffer
		if err := r.WritePicture(&b, false); err != nil {
			t.Fatal(err)
		}
		picture, err := png.Decode(&b)
		if err != nil {
			t.Fatal(err)
		}
		pixels := map[color.RGBA]int{}
		for x := range picture.Bounds().Dx() {
			for y := range picture.Bounds().Dy() {
				pixels[color.RGBAModel.Convert(picture.At(x, y)).(color.RGBA)]++
			}
		}
		return pixels
	}
	row := func(share float64, ok bool) Row {
		return Row{Model: "gpt2", Layout: "tp2 sp", World: 2, Grad: share * 1e-4, OK: ok}
	}
	half, full, broken := drawn(row(0.5, true)), drawn(row(0.5, true), row(0.5, true)), drawn(row(0.5, true), row(0.01, false))
	edge := 20 // pixels of a bar's edges that are mixed with the ground
	if n := half[holds]; n < 20*edge || full[holds] < 2*n-edge || broken[holds] < n-edge || broken[holds] > n+edge || half[fails] != 0 || broken[fails] < 2*n-2*edge {
		t.Errorf("blue pixels %d, of two layouts %d, beside one that differs %d; red ones %d, %d", n, full[holds], broken[holds], half[fails], broken[fails])
	}
}
