//go:build cgo && linux

package start

// #cgo CFLAGS: -O2 -Wall -Wextra -Werror
// #cgo LDFLAGS: -lpthread
import "C"
