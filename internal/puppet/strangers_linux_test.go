package puppet_test

import (
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/tutti-project/tutti/internal/puppet"
)

// A `puppet apply` in a container on this machine changes only the container.
func TestTheApplyOfAContainerIsItsOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a PID namespace needs root")
	}
	pid := apply(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}, "site.pp")
	if got, err := puppet.Strangers(); err != nil || slices.Contains(got, fmt.Sprintf("puppet apply, pid %d", pid)) {
		t.Errorf("strangers %q, %v", got, err)
	}
}
