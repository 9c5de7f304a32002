package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
)

// TestAnOperatorHasFewUnfinishedJobs checks the limit of unfinished jobs. Each such job is work for the server at
// each decision, and keeps its nodes from other jobs.
func TestAnOperatorHasFewUnfinishedJobs(t *testing.T) {
	f := newShop(t)
	start := func(name string) (tutti.JobID, error) {
		return f.StartJob(f.as(name, tutti.VerbRun), api.StartJob{Plan: "deploy", Mode: tutti.ModeApply})
	}
	var first tutti.JobID
	for i := range 20 {
		id, err := start("deployer")
		if err != nil {
			t.Fatalf("job %d: %v", i+1, err)
		}
		if i == 0 {
			first = id
		}
	}
	n := len(f.Events())
	_, err := start("deployer")
	wantCode(t, err, tutti.CodeConflict, "operator deployer has 20 unfinished jobs (deploy-1, deploy-2, deploy-3, deploy-4, deploy-5, 15 more)")
	wantCode(t, err, tutti.CodeConflict, "wait for one of them, or: tutti job cancel JOB")
	if got := f.Since(n); len(got) != 0 {
		t.Errorf("appended %v, want nothing", got)
	}
	if _, err := start("webber"); err != nil {
		t.Errorf("another operator: %v", err)
	}
	for range 21 {
		if _, err := start("ada"); err != nil {
			t.Fatalf("an admin: %v", err)
		}
	}
	f.Fleet = f.Restart()
	_, err = start("deployer")
	wantCode(t, err, tutti.CodeConflict, "has 20 unfinished jobs")
	if err := f.CancelJob(f.as("deployer", tutti.VerbRun), api.CancelJob{Job: first}); err != nil {
		t.Fatal(err)
	}
	if _, err := start("deployer"); err != nil {
		t.Errorf("after one has ended: %v", err)
	}
	f.Push(strings.Split(accessFleet, "access:")[0])
	if _, err := start("deployer"); err != nil {
		t.Errorf("without access everybody is admin: %v", err)
	}
}

// TestARevocationCancelsJobs checks that the jobs which a thief has queued do not begin any more.
func TestARevocationCancelsJobs(t *testing.T) {
	for _, all := range []bool{false, true} {
		t.Run(fmt.Sprintf("with --cancel-jobs %v", all), func(t *testing.T) {
			f := servertest.Start(t)
			f.Push(accessFleet)
			web := f.Join("web-01")
			for _, name := range []string{"ada", "deployer", "webber"} {
				if err := f.Emit(&tutti.OperatorIssued{Operator: name, Serial: "serial"}); err != nil {
					t.Fatal(err)
				}
			}
			start := func(name string) tutti.JobID {
				id, err := f.StartJob(tutti.WithActor(t.Context(), "operator:"+name), api.StartJob{Plan: "deploy", Mode: tutti.ModeApply})
				if err != nil {
					t.Fatal(err)
				}
				return id
			}
			begun := start("deployer")
			order := web.MustClaim()
			waiting, others := []tutti.JobID{start("deployer"), start("deployer")}, start("webber")
			n := len(f.Events())
			got, err := f.RevokeOperator(servertest.Operator(), api.RevokeOperator{Operator: "deployer", Last: true, CancelJobs: all})
			want := api.RevokedOperator{Cancelled: waiting, GoOn: []tutti.JobID{begun}}
			if all {
				want = api.RevokedOperator{Cancelled: append([]tutti.JobID{begun}, waiting...), GoOn: []tutti.JobID{}}
			}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("-want +got\n%s\n%v", diff, err)
			}
			var cancelled []tutti.JobID
			for _, e := range f.Events()[n:] {
				if b, is := e.Body.(*tutti.JobCancelled); is {
					cancelled = append(cancelled, b.Job)
					if b.Reason != "operator deployer was revoked" || e.By != "operator:ada" {
						t.Errorf("%s: %q by %s", b.Job, b.Reason, e.By)
					}
				}
			}
			if !slices.Equal(cancelled, want.Cancelled) {
				t.Errorf("the log cancels %v, want %v", cancelled, want.Cancelled)
			}
			web.Finish(order.Run)
			for _, id := range waiting {
				wantVerdict(t, f, id, tutti.VerdictCancelled)
			}
			if verdict := f.Job(begun).Verdict; (verdict == tutti.VerdictCancelled) != all {
				t.Errorf("%s: %q", begun, verdict)
			}
			wantVerdict(t, f, others, "")
		})
	}
}
