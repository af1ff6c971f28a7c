package devices

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"monotron/csrc/device"
	"monotron/csrc/gpus"
	"monotron/csrc/ref"
	"monotron/internal/exitcode"
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
		{"auto", "1", 1, true, "rank 0 of this host has a GPU, but rank 1 has none"},
		{"auto", "1", 0, true, ""},
		{"card", "", 0, true, "no card"},
		{"card", "1", 2, true, ""},
		{"processor", "1", 0, true, ""},
		{"tape", "", 1, true, "--device must be auto, card or processor, not tape"},
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
		} else if err == nil || !strings.Contains(err.Error(), c.want) || exitcode.CodeOf(err) != exitcode.Usage {
			t.Errorf("%+v: %v, want %q", c, err, c.want)
		}
	}
}

// Claim (docs/devices.md): a rank takes the GPU of its number, or the only one that it is
// shown; ranks of one process take the visible ones in turn; each knows which it has.
func TestSeats(t *testing.T) {
	cards := func(names ...string) func() (gpus.Survey, error) {
		s := gpus.Survey{}
		for i, name := range names {
			s.GPUs = append(s.GPUs, gpus.GPU{Index: i, UUID: name})
		}
		return func() (gpus.Survey, error) { return s, nil }
	}
	silent := func() (gpus.Survey, error) { return gpus.Survey{}, errors.New("no driver") }
	for name, c := range map[string]struct {
		visible string
		rank    string // of four ranks of this host; "": not launched
		survey  func() (gpus.Survey, error)
		want    string // units of five openings in a row, or the error
	}{
		"by number":          {rank: "2", survey: cards("a", "b", "c", "d"), want: "2c 2c 2c 2c 2c"},
		"own by variable":    {rank: "2", visible: "3", survey: cards("a", "b", "c", "d"), want: "0d 0d 0d 0d 0d"},
		"own by a cgroup":    {rank: "2", visible: "0", survey: cards("x"), want: "0x 0x 0x 0x 0x"},
		"one shown, unnamed": {rank: "2", survey: cards("x"), want: "0x 0x 0x 0x 0x"},
		"one process":        {survey: cards("a", "b", "c"), want: "0a 1b 2c 0a 1b"},
		"no driver":          {rank: "2", survey: silent, want: "2 2 2 2 2"},
		"no driver, no rank": {survey: silent, want: "0 0 0 0 0"},
		"too few":            {rank: "1", survey: cards("a", "b"), want: "2 GPUs are visible, but 4 are needed"},
		"no such GPU":        {visible: "7", survey: cards("a", "b"), want: "GPU 7 does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CUDA_VISIBLE_DEVICES", c.visible)
			if c.visible == "" {
				unset(t, "CUDA_VISIBLE_DEVICES")
			}
			for name, value := range map[string]string{"RANK": c.rank, "LOCAL_RANK": c.rank, "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"} {
				t.Setenv(name, value)
				if c.rank == "" {
					unset(t, name)
				}
			}
			at := -1
			chosen := &choice{survey: c.survey, kinds: []Kind{{Name: "card", OnePerRank: true, Open: func(local int) (*device.Device, error) {
				at = local
				return ref.Open(), nil
			}}}}
			var got []string
			for range 5 {
				d, err := chosen.open("card")
				if err != nil {
					if !strings.Contains(err.Error(), c.want) || exitcode.CodeOf(err) != exitcode.Usage {
						t.Fatalf("%v, want %q", err, c.want)
					}
					return
				}
				got = append(got, strconv.Itoa(at)+d.Unit)
				d.Close()
			}
			if strings.Join(got, " ") != c.want {
				t.Errorf("%v, want %s", got, c.want)
			}
		})
	}
}

// unset takes a variable away that t.Setenv brings back.
func unset(t *testing.T, name string) {
	if err := os.Unsetenv(name); err != nil {
		t.Fatal(err)
	}
}
