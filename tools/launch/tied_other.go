//go:build !linux

package launch

import "syscall"

// tied puts a rank in a process group of its own.
func tied() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
