// Package elementary has functions of package math with the same bits on every processor.
//
// Package math has assembly for some functions on some processors, and on arm64 the compiler fuses
// x*y + z to one rounding, in package math too. Here each operation is rounded by itself: an explicit
// conversion to float64 keeps a product from being fused. Where bits are promised over processors
// (docs/invariance.md), whatever a run's numbers come from uses this package: initial weights, tables of
// positions, learning rates. Of package math, Sqrt, Floor, Ceil, Mod, Frexp and Ldexp are exact or rounded
// as IEEE 754 says, and so the same everywhere.
package elementary
