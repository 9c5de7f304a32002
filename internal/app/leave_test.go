package app

import (
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/machine"
)

// A node that leaves the fleet deletes everything that the agent made, also foreign
// runs that the server has not received.
func TestLeaveRemovesWhatTheAgentMade(t *testing.T) {
	dir, _ := joined(t)
	owed := `{"owed":[{"resource":"Service[web]","run":"f0b1c2d3-44fd-4cfb-a257-c1ed5af072f2"}]}`
	owed += fmt.Sprintf("\t%08x\n", crc32.ChecksumIEEE([]byte(owed)))
	if err := os.WriteFile(filepath.Join(dir, agent.OwedFile), []byte(owed), 0o600); err != nil {
		t.Fatal(err)
	}
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
	if !slices.Equal(left.Owed, []string{"Service[web]"}) {
		t.Errorf("the person who lets the node leave hears that %v are not refreshed, want Service[web]", left.Owed)
	}
}
