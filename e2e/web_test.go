//go:build e2e

package e2e_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/stage"
)

// TestWeb deploys the web example with its plan. Then it changes data. Only two kinds of nodes may
// run: nodes that read the changed data, and nodes that read the exports of these nodes. Warm and
// cold runs must leave the same state, even if they change something.
func TestWeb(t *testing.T) {
	f := exampleFleet(t, "web")
	start(t, f, "deploy", tutti.ModeApply).end().checkSummary(tutti.VerdictSucceeded, 3, 0)
	checkSite(t, f, "release 1.0 from web-01\n", "release 1.0 from web-02\n")
	converge(t, f).end().checkConverged(nil)

	const release = "shared/hiera/profile::web::release"
	servers := map[tutti.NodeName]int{"web-01": 1, "web-02": 1}
	warm := convergeTo(t, f, release, `"1.1"`, servers)
	checkSite(t, f, "release 1.1 from web-01\n", "release 1.1 from web-02\n")
	convergeTo(t, f, release, `"1.0"`, servers)
	checkOwnFacts(t, checkAgain(t, f, "deploy").Steps[0])
	cold := convergeTo(t, f, release, `"1.1"`, servers)
	checkWarmAsCold(t, f, warm.Job, cold.Job)

	convergeTo(t, f, "node/web-02/hiera/profile::web::weight", `0`, map[tutti.NodeName]int{"web-02": 1, "lb-01": 1})
	checkSite(t, f, "release 1.1 from web-01\n")
}

// convergeTo sets a value and converges. The converge must consist of the given runs.
func convergeTo(t *testing.T, f *stage.LabFleet, key, value string, want map[tutti.NodeName]int) *job {
	t.Helper()
	if err := f.Client.SetValue(t.Context(), key, []byte(value)); err != nil {
		t.Fatal(err)
	}
	j := converge(t, f).end()
	j.checkConverged(want)
	return j
}

// checkSite compares the pages that the site of the example shows through its load balancer.
func checkSite(t *testing.T, f *stage.LabFleet, want ...string) {
	t.Helper()
	got, err := f.AskSite(t.Context())
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v; pages -want +got\n%s", err, diff)
	}
}
