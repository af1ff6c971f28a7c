// Package training is a run, from its configuration to its last checkpoint: it decides when
// to step, evaluate, save, log and stop, and computes nothing itself (package engine does).
//
// Reading order: job.go (what the ranks of a process share), run.go (a rank's run),
// setup.go, rate.go (the course of the learning rate), loop.go, stop.go (reasons to stop, and
// how ranks agree on them), then what the loop calls: data.go and order.go (micro-batches
// from datasets), evaluate.go and samples.go, checkpoint.go (what is kept), save.go with
// foreignsave.go, restore.go with foreign.go and upcycle.go (resuming), memorycheckpoint.go, logger.go and
// record.go (the record of a step), nonfinite.go and replay.go (a step that is not finite:
// where, and the same step again). hold.go checks that --save can be written and keeps other
// runs out of it; rehearse.go is the dry run; pulse.go reports that a long step is in
// progress; console.go prints for all ranks of a process; gpus.go monitors the GPUs; peak.go
// measures the peak for MFU.
//
// Who decides what: every decision that ranks must share is agreed on (Run.agree) before
// any of them acts; exit codes are package exitcode's. The ranks are made and watched by
// mpu/ranks.
//
// Preference tuning: prefer.go (the loss of rows from the losses of tokens), preferbatch.go (what
// that loss needs of the global batch), reference.go (log-probabilities of the reference), tally.go
// (logged numbers), preferdata.go (rows).
//
// Rewards: sampling.go (GRPO's objective), samplinganswers.go (answers are sampled, rewarded and sent to all
// ranks), samplingvalues.go (logged numbers). objective.go is the interface that preference tuning and GRPO
// implement.
//
// Evaluations that are compared: best.go (the lowest validation loss, early stopping).
//
// Beyond the log: alerts.go (what a person should check), dashboard.go (the run's page).
package training
