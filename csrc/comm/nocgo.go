//go:build !cgo

package comm

import (
	"time"
	"unsafe"

	"monotron/internal/exitcode"
)

// Engine cannot be had in this build.
type Engine struct{}

// Mesh cannot be had in this build.
type Mesh struct{}

var errNoC = exitcode.Errorf(exitcode.Usage, "this program was built without cgo, which Gloo needs")

func Available() error                                         { return errNoC }
func Open(string) (*Engine, error)                             { return nil, errNoC }
func (*Engine) Describe() string                               { return "" }
func (*Engine) Close()                                         {}
func (*Engine) NewMesh(int, int, time.Duration) (*Mesh, error) { return nil, errNoC }
func (*Mesh) Rank() int                                        { return 0 }
func (*Mesh) AddressBytes() int                                { return 0 }
func (*Mesh) Addresses() ([]byte, error)                       { return nil, errNoC }
func (*Mesh) Connect([]byte) error                             { return errNoC }
func (*Mesh) Send(int, uint64, []byte) error                   { return errNoC }
func (*Mesh) Recv(int, uint64, []byte) error                   { return errNoC }
func (*Mesh) AllReduce(unsafe.Pointer, int64, int, int) error  { return errNoC }
func (*Mesh) Abort()                                           {}
func (*Mesh) Close()                                           {}
