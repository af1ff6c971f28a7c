package spin

import "syscall"

// yield leaves the core to a thread of another process that is ready, if there is one.
func yield() { syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0) }
