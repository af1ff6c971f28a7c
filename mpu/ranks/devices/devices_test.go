package devices

import (
	"errors"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/ref"
	"monotron/fault"
)

// kinds are a GPU that a host has so many of, a processor that opens or does not, and ref.
func kinds(cards int, processor bool) []Kind {
	return []Kind{
		{Name: "card", OnePerRank: true, Open: func(local int) (*device.Device, error) {
			if local >= cards {
				return nil, errors.New("no card")
			}
			return ref.Open(), nil
		}},
		Everywhere("processor", func() (*device.Device, error) {
			if !processor {
				return nil, errors.New("no processor")
			}
			return ref.Open(), nil
		}),
	}
}

// Claim (docs/devices.md): auto is the fastest that opens, on every rank of a host the
// same kind; a name asks for that kind alone.
func TestChoice(t *testing.T) {
	for _, c := range []struct {
		device    string
		rank      string // of two ranks of this host; "": not launched
		cards     int
		processor bool
		want      string // what the error must say; "": it opens
	}{
		{"auto", "", 1, true, ""},
		{"", "", 0, true, ""},
		{"auto", "", 0, false, "no processor"},
		{"auto", "1", 2, true, ""},
		{"auto", "1", 1, true, "rank 0 of this host has a GPU, rank 1 has none"},
		{"auto", "1", 0, true, ""},
		{"card", "", 0, true, "no card"},
		{"card", "1", 2, true, ""},
		{"processor", "1", 0, true, ""},
		{"tape", "", 1, true, "--device tape is unknown; there are auto, card and processor"},
	} {
		t.Setenv("CUDA_VISIBLE_DEVICES", "")
		for name, value := range map[string]string{"RANK": c.rank, "LOCAL_RANK": c.rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"} {
			if c.rank == "" {
				value = ""
			}
			t.Setenv(name, value)
		}
		d, err := Opener(kinds(c.cards, c.processor)...)(c.device)
		if c.want == "" {
			if err != nil {
				t.Errorf("%+v: %v", c, err)
				continue
			}
			d.Close()
		} else if err == nil || !strings.Contains(err.Error(), c.want) || fault.CodeOf(err) != fault.Usage {
			t.Errorf("%+v: %v, want %q", c, err, c.want)
		}
	}
}
