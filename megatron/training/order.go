package training

import (
	"encoding/json"

	"monotron/dataset"
	"monotron/megatron/checkpoint"
	"monotron/megatron/checkpoint/native"
	"monotron/megatron/config"
)

// sampleOrder is what the order of --dataloader-type cyclic was drawn for: the
// layout in which the run began. It stays when a checkpoint is resumed under
// another, so that samples continue as they would have.
type sampleOrder struct{ Train, Valid dataset.Draw }

// ownOrder is the order of a run that begins with c.
func ownOrder(c *config.Run) sampleOrder {
	dp := int64(max(1, c.Layout.DP))
	return sampleOrder{dataset.Draw{MicroBatch: int64(c.MicroBatchSize), DP: dp}, dataset.Draw{MicroBatch: int64(c.EvalMicroBatchSize), DP: dp}}
}

func cyclic(c *config.Run) bool { return c.DataloaderType == "cyclic" }

// continueOrder takes the order of a checkpoint.
func (r *Run) continueOrder(s native.State) {
	if !cyclic(&r.Config) {
		return
	}
	order, ok := orderOf(s)
	if !ok {
		return
	}
	r.order = order
	if own := ownOrder(&r.Config); own.Train != order.Train {
		r.log.note("samples continue in the order with which the run started: micro-batches of %d on %d data-parallel ranks", order.Train.MicroBatch, order.Train.DP)
	}
}

// orderOf is the order a checkpoint says it has: since it was resumed under
// another layout, or that of the settings it was saved with, ours or Megatron's.
func orderOf(s native.State) (order sampleOrder, ok bool) {
	// An order of its own, since the run was resumed.
	valid := func() bool { return order.Train.MicroBatch > 0 && order.Train.DP > 0 }
	if json.Unmarshal(s.Extra[checkpoint.ExtraOrder], &order) == nil && valid() {
		return order, true
	}
	// Megatron's arguments; a checkpoint of ours in that format has the order as text.
	var args struct {
		Loader     string `json:"dataloader_type"`
		Text       string `json:"sample_order"`
		MicroBatch int64  `json:"micro_batch_size"`
		DP         int64  `json:"data_parallel_size"`
	}
	if json.Unmarshal(s.Extra[checkpoint.ExtraArgs], &args) == nil {
		if json.Unmarshal([]byte(args.Text), &order) == nil && valid() {
			return order, true
		}
		order.Train = dataset.Draw{MicroBatch: args.MicroBatch, DP: args.DP}
		order.Valid = order.Train
		if args.Loader == "cyclic" && valid() {
			return order, true
		}
	}
	// The settings of the run that saved it.
	var before config.Run
	if json.Unmarshal(s.Config, &before) != nil || !cyclic(&before) {
		return order, false
	}
	order = ownOrder(&before)
	return order, valid()
}
