//go:build cgo

package cuda_test

import (
	"testing"

	"monotron/csrc/device/devicetest"
)

// Claim (docs/invariance.md): parts of the leaves of a product add up to its bits, and rows and columns
// do not depend on the others.
func TestLeavesAddUp(t *testing.T) { devicetest.LeavesAddUp(t, open(t)) }

// Claim (docs/invariance.md): gradients on a grid do not depend on the order of the samples.
func TestGridsHaveNoOrder(t *testing.T) { devicetest.GridsHaveNoOrder(t, open(t)) }

// Claim (op_sums.go): the sums of a leaf do not depend on the others.
func TestSumsOfLeaves(t *testing.T) { devicetest.SumsOfLeaves(t, open(t)) }

// Claim (docs/invariance.md): gradients of experts do not depend on which leaves come together.
func TestGroupsHaveNoOrder(t *testing.T) { devicetest.GroupsHaveNoOrder(t, open(t)) }

// Claim (docs/invariance.md): the probabilities of routers are added without rounding.
func TestBalancesAddUp(t *testing.T) { devicetest.BalancesAddUp(t, open(t)) }

// Claim (docs/invariance.md): with --layout-invariant rows, and heads of samples, do not depend on what else
// a call has, and not on how they lie in memory.
func TestAnyLayout(t *testing.T) {
	open(t) // or skip
	d := openCopy(t)
	defer d.Close()
	devicetest.AnyLayout(t, d)
}
