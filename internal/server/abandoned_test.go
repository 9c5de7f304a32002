package server_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// TestADiffWithoutItsCommandEnds: a killed command cannot cancel its job. The server cancels the job when the operator who
// began it has not followed it for three minutes. A job that this operator never followed goes on, because a program may
// only ask for its end.
func TestADiffWithoutItsCommandEnds(t *testing.T) {
	for _, tc := range []struct {
		reason  string
		follows func(p *trimming, follow func(ctx context.Context) (leave func()))
		ends    bool
	}{
		{"the command was killed", func(_ *trimming, follow func(context.Context) func()) {
			follow(servertest.Operator())()
		}, true},
		{"the command connects again", func(_ *trimming, follow func(context.Context) func()) {
			follow(servertest.Operator())()
			time.Sleep(2 * time.Minute)
			follow(servertest.Operator())
		}, false},
		{"one of two commands was killed", func(_ *trimming, follow func(context.Context) func()) {
			follow(servertest.Operator())
			follow(servertest.Operator())()
		}, false},
		{"nobody has followed", func(*trimming, func(context.Context) func()) {}, false},
		{"another operator has looked", func(_ *trimming, follow func(context.Context) func()) {
			follow(tutti.WithActor(context.Background(), "operator:bob"))()
		}, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := startPast(t, func(o *server.Options) { o.Silence = 48 * time.Hour })
				p.db.Claim() // a node that is not connected does not take part
				job, err := p.StartDiff("# other code", "db-01")
				if err != nil {
					t.Fatal(err)
				}
				run := p.db.MustClaim().Run
				var all []func()
				tc.follows(p, func(ctx context.Context) func() {
					ctx, stop := context.WithCancel(ctx)
					go func() {
						_ = p.WatchJob(ctx, api.WatchJob{Job: job, Follow: true}, func(api.Watched) error { return nil })
					}()
					synctest.Wait()
					all = append(all, stop)
					return func() { stop(); synctest.Wait() }
				})
				defer func() {
					for _, stop := range all {
						stop()
					}
				}()
				cancelled := func() bool {
					return slices.ContainsFunc(p.Events(), func(e tutti.Event) bool {
						b, is := e.Body.(*tutti.JobCancelled)
						return is && b.Job == job && b.Reason == "the command that began it is gone"
					})
				}
				time.Sleep(3*time.Minute - time.Second)
				if cancelled() {
					t.Error("the job was cancelled too early")
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				rung := slices.Contains(p.Bus.Rung(), servertest.Ring{Key: p.db.Key, Op: wire.RingCancel, Run: run})
				if cancelled() != tc.ends || rung != tc.ends {
					t.Errorf("cancelled %t, the node was told %t; want %t", cancelled(), rung, tc.ends)
				}
			})
		})
	}
}
