package gpus

import (
	"fmt"
	"strconv"
	"strings"

	"monotron/fault"
)

// Environment is CUDA_VISIBLE_DEVICES: which GPUs CUDA shows a process, and in
// which order.
type Environment struct {
	Value string
	Set   bool
}

// Visible are the GPUs that CUDA will show, in its order. As CUDA does, it ends
// at the first entry that names no GPU; that is an error here, for half a list
// is never what was meant. A MIG slice (MIG-...) counts as one GPU of its name.
func (s Survey) Visible(e Environment) ([]GPU, error) {
	if !e.Set {
		return s.GPUs, nil
	}
	var shown []GPU
	seen := map[string]bool{}
	for _, entry := range strings.Split(e.Value, ",") {
		entry = strings.TrimSpace(entry)
		if entry == "" && e.Value == "" || entry == "-1" {
			break
		}
		g, err := s.named(entry)
		if err != nil {
			return nil, fault.Errorf(fault.Usage, "CUDA_VISIBLE_DEVICES=%s: %w; this host has %s", e.Value, err, s.count())
		}
		if seen[g.UUID] {
			return nil, fault.Errorf(fault.Usage, "CUDA_VISIBLE_DEVICES=%s: GPU %d is named twice", e.Value, g.Index)
		}
		seen[g.UUID] = true
		shown = append(shown, g)
	}
	return shown, nil
}

// named finds the GPU of an index or of the beginning of a UUID.
func (s Survey) named(entry string) (GPU, error) {
	if strings.HasPrefix(entry, "MIG-") {
		return GPU{Index: -1, Name: entry, UUID: entry}, nil
	}
	if i, err := strconv.Atoi(entry); err == nil {
		if i < 0 || i >= len(s.GPUs) {
			return GPU{}, fmt.Errorf("there is no GPU %d", i)
		}
		return s.GPUs[i], nil
	}
	var found []GPU
	for _, g := range s.GPUs {
		if entry != "" && strings.HasPrefix(strings.ToLower(g.UUID), strings.ToLower(entry)) {
			found = append(found, g)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return GPU{}, fmt.Errorf("%q is neither an index nor the beginning of a GPU's UUID", entry)
	}
	return GPU{}, fmt.Errorf("%q begins the UUIDs of %d GPUs", entry, len(found))
}

func (s Survey) count() string {
	if len(s.GPUs) == 1 {
		return "1 GPU (index 0)"
	}
	return fmt.Sprintf("%d GPUs (index 0 to %d)", len(s.GPUs), len(s.GPUs)-1)
}

// Seat is the GPU of a local rank: one GPU takes one rank. A launcher that shows
// each rank one GPU of its own needs ranks = 1 here.
func (s Survey) Seat(e Environment, rank, ranks int) (GPU, error) {
	shown, err := s.Visible(e)
	if err != nil {
		return GPU{}, err
	}
	if ranks > len(shown) {
		return GPU{}, fault.Errorf(fault.Usage, "%d GPUs visible, %d asked: %s; one GPU takes one rank. Ask for %d ranks on this host "+
			"(--nproc-per-node %d or --world-size %d), or show more GPUs", len(shown), ranks, e.where(len(s.GPUs)), len(shown), len(shown), len(shown))
	}
	return shown[rank], nil
}

func (e Environment) where(have int) string {
	if e.Set {
		return fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s on a host of %d", e.Value, have)
	}
	return fmt.Sprintf("this host has %d, CUDA_VISIBLE_DEVICES is not set", have)
}
