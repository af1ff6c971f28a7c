// Package training is a run, from its flags' settings to its last checkpoint: it decides
// when to step, evaluate, save, tell and stop, and computes nothing itself (package engine
// does).
//
// Reading order: config.go (what a run is told), job.go (what the ranks of a process
// share), run.go (a rank's run), setup.go, loop.go, stop.go (reasons to stop, and how ranks
// agree on them), then what the loop calls:
// data.go and order.go (micro-batches from datasets), batchsize.go (how many), evaluate.go
// and samples.go, checkpoint.go (what is kept), save.go with foreignsave.go, restore.go with foreign.go and
// upcycle.go (going on),
// logger.go and record.go (what is told of a step), nonfinite.go and replay.go (a step that
// is not finite: where, and again). hold.go looks whether --save can be
// written, and keeps other runs out of it; rehearse.go is a run on paper; pulse.go tells that a long step is under way, console.go where; gpus.go watches the GPUs; peak.go measures for MFU.
//
// Who decides what: every decision that ranks must share is agreed on (Run.agree) before
// any of them acts; exit codes are package fault's. The ranks are made and watched by
// mpu/ranks.
//
// What is told beyond the log: alerts.go (what a person should look at), dashboard.go (the
// run's page).
package training
