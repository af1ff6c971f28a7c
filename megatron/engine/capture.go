package engine

import (
	"fmt"
	"slices"

	"monotron/csrc/device"
	"monotron/megatron/schedule"
	"monotron/megatron/spec"
	"monotron/megatron/telemetry"
	"monotron/mpu/health"
)

// Capture makes the steady parts of a step graphs, or says why that cannot be.
func (e *Engine) Capture() (why string) {
	// What the host does within a step cannot be part of a graph.
	switch {
	case e.rank.World().Size() > 1:
		return fmt.Sprintf("there are %d ranks, and a graph cannot contain exchanges between ranks", e.rank.World().Size())
	case e.config.Layout.Schedule == schedule.GPipeName:
		return "with --pipeline-schedule gpipe the backward pass of a micro-batch does not follow directly after its forward pass"
	case e.countsMicroBatches():
		return "with --moe-router-load-balancing-type global_aux_loss the gradient of a micro-batch depends on the number of the micro-batch in the step"
	case e.auxiliary != nil && e.config.RouterLossByLearned:
		return "in tuning, the gradients of the routers' losses depend on the number of learned tokens of a micro-batch"
	case e.rank.Inject != nil:
		return "--inject checks every layer"
	case e.config.OffloadFolder != "":
		return "with --offload-folder the host reads and writes files during a step"
	case e.config.PackedBase:
		return "with --quantize-base the host unpacks weights during a step"
	case e.toHost():
		return "with --optimizer-cpu-offload the host computes a part of the update"
	case e.Timers.Trace != nil:
		return "--profile traces the forward pass and the backward pass separately"
	case e.Timers.Level() >= telemetry.LevelMicro:
		return "--timing-log-level 2 times the forward pass and the backward pass separately"
	}
	// Two graphs: a micro-batch's forward and backward, and the update.
	g := &graphs{micro: e.device.NewGraph(), update: e.device.NewGraph(), in: inputs{scope: e.device.Arena.Scope(device.Activations)}}
	if g.micro == nil {
		return fmt.Sprintf("the %s device does not support them", e.device.Name)
	}
	e.graphs, e.Optimizer.Graph = g, g.update
	return ""
}

// countsMicroBatches reports whether what a micro-batch does goes by how many were before it.
func (e *Engine) countsMicroBatches() bool {
	x := e.config.Model.Experts
	return x != nil && slices.Contains(x.Balancing, spec.GlobalAuxLoss)
}

// runGraphs trains on micro-batches one after the other. Forward gets the time of both.
func (e *Engine) runGraphs(micros []*Micro, r *Result) error {
	for _, m := range micros {
		e.rank.Enter(health.Forward, e.Iteration+1)
		timed := e.timed(&r.Forward)
		pass, mask := e.load(e.graphs.in.rewind(), m, e.parts[0], len(micros), true)
		err := e.graphs.micro.Run(func() error {
			out, err := e.Stages[0].Forward(pass, device.Tensor{})
			if err != nil {
				return err
			}
			e.addLosses(pass, out, mask)
			return e.Stages[0].Backward(pass, out, device.Tensor{}, device.Tensor{})
		})
		if err != nil {
			return err
		}
		timed()
	}
	return nil
}

// GraphNews are lines for the log, each returned once: what became of the graphs.
func (e *Engine) GraphNews() (lines []string) {
	if g := e.graphs; g != nil {
		g.tell()
		lines, g.news = g.news, nil
	}
	return lines
}
