package comm

import (
	"errors"
	"strings"
	"testing"
	"time"

	"monotron/csrc/device"
	"monotron/fault"
)

// Claim: ranks get NCCL together or not at all, and what differs is named with its rank.
func TestSeatsAgree(t *testing.T) {
	gpu := func(version string) string { return seat{"cuda", version, ""}.String() }
	none := seat{"cuda", "", "NCCL cannot be used: no file"}.String()
	for name, c := range map[string]struct {
		words       []string
		lack, fails string
	}{
		"host":          {words: []string{seat{device: "cpu"}.String(), seat{device: "cpu"}.String()}},
		"all have it":   {words: []string{gpu("2.28.9"), gpu("2.28.9")}},
		"nobody has it": {words: []string{none, none}, lack: "NCCL cannot be used: no file"},
		"one has not":   {words: []string{gpu("2.28.9"), none}, lack: "rank 1: NCCL cannot be used: no file"},
		"versions":      {words: []string{gpu("2.28.9"), gpu("2.28.9"), gpu("2.27.3")}, fails: "rank 0 has NCCL 2.28.9, rank 2 has 2.27.3"},
		"devices":       {words: []string{gpu("2.28.9"), seat{device: "cpu"}.String()}, fails: "rank 0 computes on cuda, rank 1 on cpu"},
		"nothing said":  {words: []string{"", ""}},
	} {
		lack, err := agree(c.words)
		if lack != c.lack || (err == nil) != (c.fails == "") || (err != nil && !strings.Contains(err.Error(), c.fails)) {
			t.Errorf("%s: %q, %v, want %q, %q", name, lack, err, c.lack, c.fails)
		}
	}
}

// Claim: every rank of a run whose ranks compute on different devices ends with the
// names of two that do.
func TestDevicesDiffer(t *testing.T) {
	errs := processes(t, 3, time.Minute, func(p *Process, d *device.Device) error {
		d.Name = []string{"cuda", "cuda", "cpu"}[p.Rank()]
		_, err := Carry(p, p.Rank(), ranksUpTo(3), d, true, time.Minute)
		return err
	})
	for rank, err := range errs {
		if fault.CodeOf(err) != fault.Usage || !strings.Contains(err.Error(), "rank 0 computes on cuda, rank 2 on cpu") {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// Claim: everybody gets everybody's words, cut to what travels.
func TestWords(t *testing.T) {
	long := strings.Repeat("é", wordBytes)
	errs := processes(t, 3, time.Minute, func(p *Process, d *device.Device) error {
		g, err := p.Group(p.Rank(), "all", ranksUpTo(3), d)
		if err != nil {
			return err
		}
		words, err := Words(g, d, []string{"", "a\nb", long}[g.Rank()])
		if err == nil && (len(words) != 3 || words[0] != "" || words[1] != "a\nb" || words[2] != long[:wordBytes-2]) {
			t.Errorf("rank %d has %q", g.Rank(), words)
		}
		return err
	})
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
}
