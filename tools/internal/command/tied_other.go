//go:build !linux

package command

import "syscall"

// Tied is where the kernel can end a process with the one that started it.
func Tied() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
