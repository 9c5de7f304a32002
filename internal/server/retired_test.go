package server_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

func TestWatchingAfterTheLogHasLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t)
		watch := func(job tutti.JobID) []string {
			var kinds []string
			err := p.WatchJob(servertest.Operator(), api.WatchJob{Job: job}, func(w api.Watched) error {
				kinds = append(kinds, w.Event.Body.Kind())
				return nil
			})
			if err != nil {
				t.Fatalf("watch %s: %v", job, err)
			}
			return kinds
		}
		goesOn := p.Start("deploy", tutti.ModeApply)
		p.db.MustClaim()
		want := watch(goesOn)
		for i := range 3 * snapshotEvery {
			set(t, p.Fleet, "shared/x", fmt.Sprint(i))
		}
		synctest.Wait()
		p.first(t)
		if diff := cmp.Diff(want, watch(goesOn)); diff != "" {
			t.Errorf("a job of before the snapshot: -then +now\n%s", diff)
		}
		// A watcher that follows the job misses nothing while the log drops the events that the watcher has read.
		followed := make(chan []string)
		go func() {
			var kinds []string
			err := p.WatchJob(servertest.Operator(), api.WatchJob{Job: goesOn, Follow: true}, func(w api.Watched) error {
				kinds = append(kinds, w.Event.Body.Kind())
				return nil
			})
			if err != nil {
				t.Errorf("follow: %v", err)
			}
			followed <- kinds
		}()
		for i := range 3 * snapshotEvery {
			set(t, p.Fleet, "shared/y", fmt.Sprint(i))
		}
		p.db.Finish(p.db.MustClaim().Run)
		if diff := cmp.Diff([]string{"job.started", "run.wanted", "run.claimed", "run.finished", "job.finished"}, <-followed); diff != "" {
			t.Errorf("followed: -want +got\n%s", diff)
		}

		jobs := p.jobs(t, 4)
		synctest.Wait()
		err := p.WatchJob(servertest.Operator(), api.WatchJob{Job: goesOn}, nil)
		wantCode(t, err, tutti.CodeNotFound, "keeps the latest 3 jobs")
		wantCode(t, p.CancelJob(servertest.Operator(), api.CancelJob{Job: goesOn}), tutti.CodeNotFound, "any more")
		if got := watch(jobs[1]); len(got) != 7 {
			t.Errorf("the oldest job that is kept: %v", got)
		}
	})
}

func TestARetiredRunIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t)
		job := p.Start("deploy", tutti.ModeApply)
		late := p.db.MustClaim().Run
		time.Sleep(time.Minute) // the node is silent for this time
		p.jobs(t, 5)
		if got := servertest.Kinds(p.log.everything()); !slices.Contains(got, "run.lost") || !slices.Contains(got, "job.retired") {
			t.Fatalf("%s was not given up and retired: %v", job, got)
		}
		wantCode(t, p.db.Call(wire.OpResult, servertest.Result(late, tutti.Changed), nil), tutti.CodeRefused, "is not a run of node db-01")
		wantCode(t, p.db.Publish(late, "db/x", "1"), tutti.CodeRefused, "is not a run of node db-01")
		_, err := p.RunRecord(servertest.Operator(), late)
		wantCode(t, err, tutti.CodeNotFound, "")
		nodes, err := p.ListNodes(servertest.Operator())
		if err != nil || nodes[0].LastJob != "deploy-6" {
			t.Errorf("nodes %+v, %v: want the last job of db-01", nodes, err)
		}
	})
}
