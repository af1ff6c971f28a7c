// Package arguments is the command line of pretrain_gpt: it reads the flags of package
// table into the typed Configs of the packages that use them, derives values as
// Megatron's validate_args does, and reports all wrong values together.
//
// Reading order: table (what a flag is), parse.go (from argument list, file and
// checkpoint to values; configfile.go, stored.go), assign.go and build.go (from
// values to Config), derive*.go (what follows and what must hold), problems.go
// (what is wrong, each thing once), idle.go, report.go, help.go and docs.go (what
// a user sees).
//
// A number is read in two steps: internal/argv/number.go reads its text as Python does,
// table/number.go checks it against the range of the flag's row.
package arguments
