package server_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// disk is a disk that a test can fill.
type disk struct{ full atomic.Bool }

func (d *disk) options(o *server.Options) {
	o.Space = func() error {
		if d.full.Load() {
			return tutti.Errorf(tutti.CodeUnavailable, "the disk is full")
		}
		return nil
	}
}

func TestFullDiskRefusesNewWork(t *testing.T) {
	d := &disk{}
	f := servertest.Start(t, d.options)
	db := f.Join("db-01")
	f.Join("web-01")
	f.Join("web-02")
	pushed := f.Push(twoSteps)
	late, err := f.CreateToken(servertest.Operator(), api.CreateToken{Name: "late"})
	if err != nil {
		t.Fatal(err)
	}
	job := f.Start("deploy", tutti.ModeApply)
	order := db.MustClaim()
	d.full.Store(true)
	before := len(f.Events())
	ctx := servertest.Operator()
	for name, try := range map[string]func() error{
		"a job": func() error {
			_, err := f.StartJob(ctx, api.StartJob{Plan: "deploy", Mode: tutti.ModeApply})
			return err
		},
		"a blob": func() error { _, err := f.PutBlob(ctx, []byte("x")); return err },
		"code": func() error {
			_, err := f.PushCode(ctx, tutti.CodePush{SignedCode: servertest.Sign(tutti.CodeManifest{Version: 1})})
			return err
		},
		"a fleet": func() error { _, err := f.SetFleet(ctx, api.FleetSource{Source: []byte(twoSteps)}); return err },
		"a value": func() error { return f.SetValue(ctx, "shared/x", []byte("1")) },
		"a token": func() error { _, err := f.CreateToken(ctx, api.CreateToken{Name: "x"}); return err },
		"a node":  func() error { _, err := f.Enrol(ctx, f.Node("late").Request(late)); return err },
		"again a job": func() error {
			_, err := f.StartJob(ctx, api.StartJob{Plan: "deploy", Mode: tutti.ModeNoop})
			return err
		},
	} {
		if err := try(); tutti.CodeOf(err) != tutti.CodeUnavailable || err.Error() != "the disk is full" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := f.Since(before); len(got) != 0 {
		t.Errorf("the log took %v", got)
	}
	// While the disk is full, a run that has begun can go on to its end. After that no other run
	// begins.
	db.Gate(wire.Gate{Run: order.Run, CatalogReport: tutti.CatalogReport{Catalog: pushed.Code, Values: []string{"db/ready"}}})
	if err := db.Publish(order.Run, "db/ready", "true"); err != nil {
		t.Error(err)
	}
	db.Finish(order.Run)
	if diff := cmp.Diff([]string{"run.compiled", "run.gated", "value.set", "run.finished"}, f.Since(before)); diff != "" {
		t.Errorf("of the run that had begun (-want +got):\n%s", diff)
	}
	if got := f.Job(job); got.Verdict != "" || !strings.Contains(got.Message, "nothing more begins: the disk is full") {
		t.Errorf("the job says %q and has the verdict %q", got.Message, got.Verdict)
	}
	// A watcher gets a message when the disk is full, and when it has room again.
	var said []string
	err = f.WatchJob(ctx, api.WatchJob{Job: job, Follow: true}, func(w api.Watched) error {
		switch {
		case w.Live != nil:
			said = append(said, w.Live.Message)
			d.full.Store(false)
		case len(said) > 0:
			said = append(said, w.Event.Body.Kind())
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) || len(said) < 2 || said[0] != "the disk is full" || said[len(said)-1] != "run.wanted" {
		t.Errorf("the watch said %q and ended with %v", said, err)
	}
}

var errEnough = tutti.Errorf(tutti.CodeInternal, "enough")

// A wanted run begins when the disk has room again, even if the disk is full for long.
func TestFullDiskHoldsWhatWasNotClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &disk{}
		f := servertest.Start(t, d.options)
		db := f.Join("db-01")
		f.Join("web-01")
		f.Join("web-02")
		f.Push(twoSteps)
		job := f.Start("deploy", tutti.ModeApply)
		d.full.Store(true)
		claim := func() error { return db.Call(wire.OpClaim, wire.Claim{}, &wire.Claimed{}) }
		for range 5 * 60 * 60 { // the timeout of the step is an hour
			if err := claim(); tutti.CodeOf(err) != tutti.CodeUnavailable {
				t.Fatalf("a claim on a full disk: %v", err)
			}
			<-time.After(time.Second)
		}
		d.full.Store(false)
		<-time.After(time.Second)
		order := db.MustClaim()
		d.full.Store(true)
		if err := claim(); err != nil {
			t.Errorf("the order of a run that has begun is not given again: %v", err)
		}
		d.full.Store(false)
		db.Finish(order.Run)
		wantVerdict(t, f, job, "")
	})
}
