package plan

import (
	"monotron/megatron/config"
	"monotron/megatron/schedule"
)

// enough is how many micro-batches of a step tell all about memory: once every stage has as
// many alive as it ever has, later ones repeat what those before them did.
func enough(c *config.Run) int {
	s, dp := c.PipelineSchedule(1, false), c.Layout.Sizes().DP
	all := c.GlobalBatchSize / max(1, c.MicroBatchSize*dp)
	const more = 3 // in the steady part: gradients of one are under way while the next is there
	switch {
	case s.Name == schedule.GPipeName:
		return all // all are alive at once
	case s.Chunks == 1:
		return min(all, s.Stages+more)
	}
	group := s.Group
	if group == 0 {
		group = s.Stages
	}
	alive := 2*s.Stages + (s.Chunks-1)*group
	groups := (alive+more*s.Chunks)/(group*s.Chunks) + 1
	return min(all, groups*group+all%group)
}
