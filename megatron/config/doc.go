// Package config holds the configuration of a run and of a step, and the rules that follow
// from it: batch sizes, the split over pipeline stages, frozen parameters. Package arguments
// fills it from the command line; training and engine take it. It calls neither.
//
// Reading order: config.go (a run), step.go (one step), layout.go (ranks), batchsize.go (the
// course of the batch size), pipeline.go (stages), freeze.go (which parameters train).
package config
