package engine

import (
	"monotron/csrc/device"
	"monotron/megatron/schedule"
	"monotron/mpu/comm"
	"monotron/mpu/topology"
)

// hiddenRows is the rows of a micro-batch's hidden tensor on this rank.
func (e *Engine) hiddenRows(m *Micro) int64 {
	rows := int64(len(m.Tokens)*len(m.Tokens[0])) / int64(e.rank.Sizes.CP)
	if e.config.Layout.SequenceParallel {
		rows /= int64(e.rank.Groups[topology.TP].Size())
	}
	return rows
}

// link moves hidden tensors and their gradients between the ranks of a pipeline.
// What it receives belongs to the stage that uses it.
type link struct {
	engine *Engine
	work   *microBatches
	rows   int64
}

func (l *link) Exchange(transfers []schedule.Transfer, values []device.Tensor) (wait func() ([]device.Tensor, error), err error) {
	e := l.engine
	list := make([]comm.Transfer, len(transfers))
	for i, t := range transfers {
		if !t.Send {
			values[i] = e.device.Arena.Alloc(device.Communication, e.DType, l.rows, int64(e.config.Model.HiddenSize))
		}
		list[i] = comm.Transfer{Peer: t.Peer, Send: t.Send, T: values[i]}
	}
	work := e.rank.Groups[topology.PP].Exchange(list)
	return func() ([]device.Tensor, error) {
		if err := work.Wait(); err != nil {
			return nil, err
		}
		for i, t := range transfers {
			if t.Send {
				l.work.sent(t, values[i])
			}
		}
		return values, nil
	}, nil
}
