// Package arguments is the command line of pretrain_gpt: the flags of package
// table, read into the typed Configs of their owners, derived and checked all at
// once.
//
// Reading order: table (what a flag is), parse.go (from argument list, file and
// checkpoint to values; configfile.go, stored.go), assign.go and build.go (from
// values to Config), derive*.go (what follows and what must hold), problems.go
// (what is wrong, each thing once), idle.go, report.go, help.go and docs.go (what
// a user sees).
//
// A number's text is read in two steps: table/number.go holds a row's range against it,
// internal/argv/number.go reads it as Python does.
package arguments
