//go:build !cgo

package doctor

const builtWithC = false
