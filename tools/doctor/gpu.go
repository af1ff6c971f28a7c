package doctor

import (
	"fmt"
	"strings"

	"monotron/csrc/gpus"
)

// gpu is what the driver reports of this host's GPUs, and which of them a run
// started from here would see.
func (h host) gpu() Finding {
	s, err := h.gpus()
	if err != nil || len(s.GPUs) == 0 {
		return h.noGPU(err)
	}
	f := Finding{Name: "GPU", State: OK, Found: fmt.Sprintf("driver %s (CUDA %s)", s.Driver, s.CUDA)}
	shown, err := s.Visible(h.visible)
	if err != nil {
		f.State, f.Found = Note, f.Found+"; "+err.Error()
		f.Works, f.Fix = "everything on the CPU", "unset CUDA_VISIBLE_DEVICES, or name GPUs that this host has"
		return f
	}
	if len(shown) < len(s.GPUs) {
		f.Found += fmt.Sprintf("; CUDA_VISIBLE_DEVICES=%s shows %d of %d", h.visible.Value, len(shown), len(s.GPUs))
	}
	if sick := troubled(shown); len(sick) > 0 {
		f.State, f.Costs = Note, strings.Join(sick, "; ")
	}
	for _, g := range shown {
		f.Found += "; " + g.String()
	}
	return f
}

// troubled are the GPUs that would slow a run or spoil its numbers.
func troubled(shown []gpus.GPU) (lines []string) {
	for _, g := range shown {
		if g.Uncorrected > 0 {
			lines = append(lines, fmt.Sprintf("GPU %d: its memory has errors, so results cannot be trusted", g.Index))
		}
		if len(g.Slowed) > 0 {
			lines = append(lines, fmt.Sprintf("GPU %d: runs at %d of %d MHz", g.Index, g.Clock, g.MaxClock))
		}
	}
	return lines
}

func (h host) noGPU(err error) Finding {
	f := Finding{Name: "GPU", State: Missing, Works: "everything on the CPU", Found: "no GPU here"}
	if h.has("dev/nvidia0") {
		f.Found = "there is a GPU (/dev/nvidia0)"
		f.Fix = "install NVIDIA's driver; in a container, start it with the GPU's runtime"
	}
	if err != nil {
		f.Found += ": " + err.Error()
	}
	return f
}
