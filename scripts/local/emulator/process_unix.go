//go:build unix && !linux

package emulator

import "syscall"

// childAttributes puts the child in a group of its own.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
