package launch

import "syscall"

// tied puts a rank in a process group of its own, and has the kernel end it when
// the launcher dies, however that happens.
func tied() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
