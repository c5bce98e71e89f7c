package emulator

import "syscall"

// childAttributes puts the child in a group of its own, and has the kernel end it with us.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
