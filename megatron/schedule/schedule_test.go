package schedule

import "testing"

func TestQuick(t *testing.T) {
	for p := 1; p <= 8; p++ {
		for v := 1; v <= 4; v++ {
			for m := 1; m <= 32; m++ {
				for _, name := range []string{"1f1b", "gpipe"} {
					for _, fo := range []bool{false, true} {
						for _, no := range []bool{false, true} {
							c := Config{Name: name, Stages: p, Chunks: v, Micros: m, ForwardOnly: fo, NoOverlap: no}
							if c.Check() != nil {
								continue
							}
							_, proof, err := c.All()
							if err != nil {
								t.Fatalf("%+v: %v", c, err)
							}
							for s, l := range proof.Live {
								if l != c.Live(s) {
									t.Fatalf("%+v: stage %d %d alive, formula %d", c, s, l, c.Live(s))
								}
							}
						}
					}
				}
			}
		}
	}
}
