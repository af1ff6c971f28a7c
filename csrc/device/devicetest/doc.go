// Package devicetest is the one table of op cases, with three uses: values of
// any device against the plain Go oracle (Values), the oracle's gradients against
// finite differences (Gradients), and speed (Bench). SameBits runs the same table
// with different numbers of threads, Refusals with values that no device knows. DrawnValues
// compares cases beyond the table, whose shapes are drawn from a seed.
//
// Reading order: env.go (a case's memory), tolerance.go (what equal means), then
// the cases, one file a family (matmul.go, norm.go, ...); devicetest.go has what is done with
// them, with drawn.go, gradients.go, refusals.go, graphs.go and bench.go.
//
// A case writes its inputs from a seed, so every device gets the same bytes.
// Outputs that are only written start as NaN, and whatever lies in the gaps of a
// strided view must stay as it was; inputs must come out untouched.
package devicetest
