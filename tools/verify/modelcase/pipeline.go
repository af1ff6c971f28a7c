package modelcase

import (
	"fmt"

	"monotron/internal/exitcode"
	"monotron/megatron/schedule"
)

type pipelineRow struct {
	Stages  int `json:"pipeline"`
	Chunks  int `json:"virtual"`
	Micros  int `json:"microbatches"`
	Group   int
	Ranks   []string // order of each stage's forwards and backwards
	Refused string   // the peer's message, where it refuses the row
}

// runPipelineOrders: what each stage of a pipeline runs, in order, 1F1B and
// interleaved, with and without the exchanges' overlap.
func (r *run) runPipelineOrders() error {
	return rows(r, func(name string, row pipelineRow) error {
		if row.Stages < 1 || row.Chunks < 1 || row.Micros < 1 || row.Stages > 1024 || row.Chunks > 1024 || row.Micros > 1<<16 {
			return r.bad("%s: there are %d stages, %d chunks and %d micro-batches; a case may have 1 to 1024 stages, 1 to 1024 chunks and 1 to %d micro-batches", name, row.Stages, row.Chunks, row.Micros, 1<<16)
		}
		for _, noOverlap := range []bool{false, true} {
			c := schedule.Config{Stages: row.Stages, Chunks: row.Chunks, Micros: row.Micros, Group: row.Group, NoOverlap: noOverlap}
			if err := r.pipelineOrder(name, c, row); err != nil {
				return err
			}
		}
		return nil
	})
}

func (r *run) pipelineOrder(name string, c schedule.Config, row pipelineRow) error {
	what := fmt.Sprintf("%s: %d stages, %d chunks, %d micro-batches by %d", name, c.Stages, c.Chunks, c.Micros, c.Group)
	if c.NoOverlap {
		what += ", no overlap"
	}
	lists, _, err := c.All()
	if row.Refused != "" {
		r.report.exact("refused", what, exitcode.CodeOf(err), exitcode.Usage)
		return nil
	}
	if err != nil {
		return err
	}
	r.report.exact("stages", what, len(lists), len(row.Ranks))
	for stage := range min(len(lists), len(row.Ranks)) {
		r.report.exact("order", fmt.Sprintf("%s, stage %d", what, stage), schedule.Order(lists[stage], c.Chunks), row.Ranks[stage])
	}
	return nil
}
