//go:build !cgo || !amd64

package dataset

const shuffleInC, shortInC = false, false

func shortKernel([]byte, []int32) uint32 { return 0 }

func shuffleKernel(*mersenne, []uint32) {}

func blendKernel([]float64, []int64, [][]int64, int64, []int16, []int64) [][]int64 { return nil }
