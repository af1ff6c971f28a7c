// Package tests holds what starts programs: the examples, ranks as processes and on
// several hosts, faults, kills, signals and attacks; and the table of imports. The
// long proofs lie in proofs, by subject.
//
// Read program_test.go first (how the program is built), then launch_test.go (a folder
// with a data set, and how a run is started and watched); the others use both.
package tests
