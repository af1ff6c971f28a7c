// Package verify is the command `verify`: it proves that no layout of ranks changes
// the maths, runs cases whose answers other programs made, and checks muP's widths.
//
// Read command.go (the commands), prove.go with progress.go (layouts, in package layouts) and mup.go
// (widths, in package coordinates).
package verify
