package puppet_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/puppet"
)

// A noop run's changes do not contain the word noop. Each change says whether it would
// undo a change by somebody else.
func TestNoopChanges(t *testing.T) {
	sample, dir := filepath.Join(samples, "8.10.0", "noop"), t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(sample)); err != nil {
		t.Fatal(err)
	}
	report := `{"transaction_uuid": "` + string(runOf(t, sample)) + `", "status": "unchanged", "noop_pending": true, "transaction_completed": true,
		"resource_statuses": {"File[x]": {"resource": "File[x]", "out_of_sync": true, "events": [
			{"status": "noop", "message": "is a, should be b (noop) (corrective)"}, {"status": "noop", "message": "is c, should be d (noop)"}]}}}`
	if err := os.WriteFile(filepath.Join(dir, puppet.ReportFile), []byte(report), 0o600); err != nil {
		t.Fatal(err)
	}
	want := []tutti.Change{{Resource: "File[x]", Message: "is a, should be b (corrective); is c, should be d"}}
	got := puppet.Judge(dir, runOf(t, sample))
	if diff := cmp.Diff(want, got.Changes); diff != "" || got.Outcome != tutti.Unchanged {
		t.Errorf("%s, -want +got\n%s", got.Outcome, diff)
	}
}
