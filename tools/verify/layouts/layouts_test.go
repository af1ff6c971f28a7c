package layouts

import (
	"fmt"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
)

func open() (*device.Device, error) { return ref.Open(), nil }

// Claim: no layout changes the maths of any of the shapes. Every 31st layout here;
// `monotron verify` tries all.
func TestLayoutsAgree(t *testing.T) {
	var models []Model
	for _, s := range Shapes {
		m, err := Builtin(s.Name)
		if err != nil {
			t.Fatal(err)
		}
		models = append(models, m)
	}
	r, err := Prove(models, Options{World: 8, Steps: 2, Stride: 31, Open: open, Told: func(int, int, string) {}})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println(len(r.Rows), "layouts, every 31st")
	for _, row := range r.Rows {
		if !row.OK {
			t.Errorf("%s, %s: %s", row.Model, row.Layout, row.Problem)
		}
	}
}
