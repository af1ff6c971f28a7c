package layouts

import (
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
)

func open() (*device.Device, error) { return ref.Open(), nil }

// Claim: no layout changes the maths of any of the shapes. Every 31st layout here
// (every 101st with -short); `monotron verify` tries all.
func TestLayoutsAgree(t *testing.T) {
	var models []Model
	for _, s := range Shapes {
		m, err := Builtin(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		models = append(models, m)
	}
	stride := 31
	if testing.Short() {
		stride = 101
	}
	r, err := Prove(models, Options{World: 8, Steps: 2, Stride: stride, Open: open, Told: func(int, int, string) {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d layouts, every %dth", len(r.Rows), stride)
	for _, row := range r.Rows {
		if !row.OK {
			t.Errorf("%s, %s: %s", row.Model, row.Layout, row.Problem)
		}
	}
}
