//go:build !cgo || !amd64

package dataset

const shuffleInC = false

func shuffleKernel(*mersenne, []uint32) {}

func blendKernel([]float64, []int64, []int64, int64, []int16, []int64) ([]int64, bool) {
	return nil, false
}
