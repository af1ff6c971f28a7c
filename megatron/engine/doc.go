// Package engine runs one step of one rank: a batch passes forward and backward through the
// rank's stages, gradients are summed and clipped, the optimizer updates the weights. It
// knows neither files nor datasets, nor who requests the step.
//
// Reading order: step.go (a step, top to bottom), then what it rests on: engine.go (the
// parts of an engine; package config holds its settings), groups.go (the groups of ranks it
// works with), batch.go (a micro-batch on its way to the device), ahead.go
// (what of it the tokens after the next one need), pipeline.go (the
// schedule's actions on the rank's stages) and link.go (what passes between stages). Next to
// the step: observer.go (passes without training), capture.go and graphs.go (steady parts of a
// step as CUDA graphs), attention.go (which attention kernels run), learned.go
// (which tokens go through the output layer), result.go (what a step
// reports).
//
// Invariants: ranks that share a model call the same methods in the same order. A step that
// returns an error has changed nothing of the model. The engine keeps no data of the caller
// after a call.
package engine
