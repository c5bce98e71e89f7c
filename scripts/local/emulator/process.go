package emulator

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// A process is one emulator that we started.
type process struct {
	os     *os.Process
	exited chan struct{} // closed when the process is gone and waited for
}

// startProcess starts a command with its output in a new log.
func startProcess(path string, args []string, logPath string) (*process, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return nil, fmt.Errorf("create its log: %w", err)
	}
	defer log.Close() // the child has its own copy
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = childAttributes()

	p := &process{exited: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Linux ends the child when the *thread* that started it ends, and the Go runtime ends idle
		// threads as it likes. This goroutine keeps its thread for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.os = cmd.Process
		}
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended tells nothing: it is stopped by a signal
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// end stops the process, kindly first, and returns when it is gone. A process that has ended already
// is not signalled: os.Process knows, so that no other one with the same id is met.
func (p *process) end() {
	_ = p.os.Signal(syscall.SIGTERM)
	select {
	case <-p.exited:
	case <-time.After(3 * time.Second):
		_ = p.os.Kill()
		<-p.exited
	}
}
