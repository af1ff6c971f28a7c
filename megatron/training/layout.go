package training

import (
	"time"

	"monotron/csrc/device"
	"monotron/mpu/ranks"
	"monotron/mpu/topology"
)

// Sizes are the layout's, a size that is not set counting as 1.
func (l Layout) Sizes() topology.Sizes {
	return topology.Sizes{TP: max(1, l.TP), CP: max(1, l.CP), DP: max(1, l.DP), PP: max(1, l.PP), EP: max(1, l.EP), ETP: l.ETP, PPBeforeDP: l.OrderTPPPDP,
		Instances: l.OptimizerInstances}
}

// groupKinds are the groups that a step works with.
var groupKinds = []topology.Kind{topology.TP, topology.PP, topology.DP, topology.Model, topology.Embedding, topology.QuerySharers, topology.Shard, topology.Across}

// Ranks are those that train the model, on devices that open makes.
func (c *Config) Ranks(open func() (*device.Device, error)) ranks.Config {
	l := &c.Layout
	sizes := l.Sizes()
	sizes.QueryGroups = c.Model.NumQueryGroups
	return ranks.Config{Sizes: sizes, Kinds: groupKinds, Open: open, Timeout: time.Duration(l.TimeoutMinutes) * time.Minute, NCCL: l.Backend != "gloo"}
}
