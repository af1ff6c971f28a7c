// Package pretrain is the command pretrain_gpt: flags to arguments to training.Run.
//
// Reading order: command.go (from the command line to the ranks' work, and signals), plan.go
// (what the ranks will hold, before they do; what would have saved memory), processes.go (one
// rank of a launched run), reader.go (who reads the log).
package pretrain
