package app

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/machine"
)

// A node that leaves the fleet deletes everything that the agent made, also foreign
// runs that the server has not received.
func TestLeaveRemovesWhatTheAgentMade(t *testing.T) {
	dir, _ := joined(t)
	for _, file := range []string{"known/one", "foreign/seen", "foreign/f0b1c2d3-44fd-4cfb-a257-c1ed5af072f2.json"} {
		at := filepath.Join(dir, file)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	left, err := machine.Leave(t.Context(), machine.LeaveOptions{Dir: dir, Offline: true})
	if err != nil || left.Remains != nil || durable.Exists(dir) {
		t.Errorf("%v remain, %v; the directory is there: %t", left.Remains, err, durable.Exists(dir))
	}
}
