package gpus

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"monotron/internal/exitcode"
)

const variable = "CUDA_VISIBLE_DEVICES"

// Environment is CUDA_VISIBLE_DEVICES: which GPUs CUDA shows a process, and in
// which order.
type Environment struct {
	Value string
	Set   bool
}

// One: a single entry is shown to this process, as by a launcher that gives each rank its own.
func (e Environment) One() bool { return e.Value != "" && !strings.Contains(e.Value, ",") }

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
			return nil, exitcode.Errorf(exitcode.Usage, "CUDA_VISIBLE_DEVICES=%s: %w; this host has %s", e.Value, err, s.count())
		}
		if seen[g.UUID] {
			return nil, exitcode.Errorf(exitcode.Usage, "CUDA_VISIBLE_DEVICES=%s names GPU %d twice", e.Value, g.Index)
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
			return GPU{}, fmt.Errorf("GPU %d does not exist", i)
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
	return GPU{}, fmt.Errorf("the UUIDs of %[2]d GPUs begin with %[1]q; give more characters", entry, len(found))
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
	if len(shown) == 0 {
		return GPU{}, exitcode.Errorf(exitcode.Usage, "no GPU is visible, but %d are needed: %s; make GPUs visible, or use --device cpu", ranks, e.where(len(s.GPUs)))
	}
	if ranks > len(shown) {
		return GPU{}, exitcode.Errorf(exitcode.Usage, "%d GPUs are visible, but %d are needed: %s; a GPU can run only one rank. Use %d ranks on this host "+
			"(--nproc-per-node %d or --world-size %d), or make more GPUs visible", len(shown), ranks, e.where(len(s.GPUs)), len(shown), len(shown), len(shown))
	}
	return shown[rank], nil
}

// Shares is Survey.Shares of this host. Where the driver cannot be asked, what
// CUDA_VISIBLE_DEVICES names is believed.
func Shares(ranks int) []string {
	e := Here()
	if s, err := Read(); err == nil {
		return s.Shares(e, ranks)
	}
	if list := strings.Split(e.Value, ","); e.Value != "" && len(list) >= ranks {
		return list[:ranks]
	}
	return nil
}

// Shares is what CUDA_VISIBLE_DEVICES has to be for each of the ranks of a host, one GPU
// a rank; nil where there are too few, or somebody has chosen in a way that is not understood.
func (s Survey) Shares(e Environment, ranks int) []string {
	shown, err := s.Visible(e)
	if err != nil || len(shown) < ranks {
		return nil
	}
	names := make([]string, ranks)
	for i := range names {
		names[i] = strconv.Itoa(shown[i].Index)
		if e.Set { // as it was written: a MIG slice has no index
			names[i] = strings.TrimSpace(strings.Split(e.Value, ",")[i])
		}
	}
	return names
}

// Here is this process's environment.
func Here() Environment {
	value, set := os.LookupEnv(variable)
	return Environment{value, set}
}

func (e Environment) where(have int) string {
	if e.Set {
		return fmt.Sprintf("CUDA_VISIBLE_DEVICES=%s on a host with %d GPUs", e.Value, have)
	}
	return fmt.Sprintf("this host has %d GPUs, and CUDA_VISIBLE_DEVICES is not set", have)
}
