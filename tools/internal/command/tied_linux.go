package command

import "syscall"

// Tied has the kernel end a process when the thread dies that started it, however that
// happens. Go ends a thread before the program only with a goroutine that was locked to it.
func Tied() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
