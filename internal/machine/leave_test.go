package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/durable"
)

// After leave, the agent's directory contains none of our files, and all files of others.
func TestRemoveState(t *testing.T) {
	for _, tc := range []struct {
		reason string
		others []string
	}{
		{"only ours: the directory goes", nil},
		{"a file of others stays", []string{"notes"}},
	} {
		dir := filepath.Join(t.TempDir(), "agent")
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, name := range append([]string{"foreign", CompileFile, leftFile, agent.BegunFile, agent.SignedFile, agent.ActionsFile, agent.TicketFile}, tc.others...) {
			if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var want []string
		for _, name := range tc.others {
			want = append(want, filepath.Join(dir, name))
		}
		got, err := removeState(dir)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
		if durable.Exists(dir) != (tc.others != nil) {
			t.Errorf("%s: the directory is there: %t", tc.reason, durable.Exists(dir))
		}
	}
}
