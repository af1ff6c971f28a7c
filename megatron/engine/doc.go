// Package engine is one step of one rank: a batch goes forward and backward through the
// rank's stages, gradients are summed and clipped, the optimizer moves the weights. It
// knows neither files nor data sets, nor who asks for the step.
//
// Reading order: step.go (a step, top to bottom), then what it rests on: config.go and
// layout.go (what an engine is told), engine.go (what it is made of), groups.go (which
// groups of ranks it works with), batch.go (a micro-batch on its way to the device),
// pipeline.go (the schedule's actions on the rank's stages) and link.go (what travels
// between stages), stages.go (which layers each stage has, and the schedule). Beside the
// step: look.go (passes without training), capture.go and graphs.go (steady parts of a
// step as CUDA graphs), attention.go (whose attention kernels), result.go (what a step
// tells).
//
// What must hold: ranks that share a model call the same methods in the same order. A step
// that returns an error has changed nothing of the model. The engine keeps no data of the
// caller's beyond a call.
package engine
