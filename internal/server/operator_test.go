package server_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
)

// The function `issue` issues a certificate to an operator and admits the operator.
func issue(t *testing.T, f *servertest.Fleet, name string) (inside context.Context, leave func()) {
	t.Helper()
	out, err := f.IssueOperator(servertest.Operator(), api.IssueOperator{Operator: name, Request: []byte("request")})
	if err != nil {
		t.Fatal(err)
	}
	inside, leave, err = f.Admit(t.Context(), name, out.Serial)
	if err != nil {
		t.Fatal(err)
	}
	return inside, leave
}

// Calls of an operator end when the operator is revoked. Calls of other operators go on.
func TestARevocationEndsWhatGoesOn(t *testing.T) {
	f := servertest.Start(t)
	eve, leave := issue(t, f, "eve")
	defer leave()
	bob, leave := issue(t, f, "bob")
	defer leave()
	if _, err := f.RevokeOperator(bob, api.RevokeOperator{Operator: "eve", Reason: "stolen"}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-eve.Done():
		wantCode(t, context.Cause(eve), tutti.CodeUnauthenticated, "stolen")
	case <-time.After(hang):
		t.Error("what eve does goes on")
	}
	if bob.Err() != nil {
		t.Errorf("what bob does ended: %v", context.Cause(bob))
	}
	// A request that came before the revocation and waited in the queue is refused as well.
	n := len(f.Events())
	wantCode(t, f.SetValue(context.WithoutCancel(eve), "shared/x", []byte("1")), tutti.CodeUnauthenticated, "was revoked")
	_, err := f.RenewOperator(context.WithoutCancel(eve), []byte("request"))
	wantCode(t, err, tutti.CodeUnauthenticated, "was revoked")
	_, err = f.ListNodes(context.WithoutCancel(eve))
	wantCode(t, err, tutti.CodeUnauthenticated, "was revoked")
	if got := f.Since(n); len(got) != 0 {
		t.Errorf("appended %v, want nothing", got)
	}
	if err := f.SetValue(bob, "shared/x", []byte("1")); err != nil {
		t.Error(err)
	}
}

func TestARevocationSurvivesARestart(t *testing.T) {
	f := servertest.Start(t)
	_, leave := issue(t, f, "eve")
	leave()
	if _, err := f.RevokeOperator(servertest.Operator(), api.RevokeOperator{Operator: "eve"}); err != nil {
		t.Fatal(err)
	}
	f = f.Restart()
	_, _, err := f.Admit(t.Context(), "eve", "serial-of-before")
	wantCode(t, err, tutti.CodeUnauthenticated, "tutti operator create eve")
	_, leave = issue(t, f, "eve")
	leave()
}

// TestRenewalsAreBounded checks the limit of renewals, because the log keeps an event for each of them.
func TestRenewalsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := false
		f := servertest.Start(t, func(o *server.Options) {
			o.Space = func() error {
				if full {
					return tutti.Errorf(tutti.CodeUnavailable, "the disk is full")
				}
				return nil
			}
		})
		eve, leave := issue(t, f, "eve")
		defer leave()
		bob, leave := issue(t, f, "bob")
		defer leave()
		renew := func(ctx context.Context) error { _, err := f.RenewOperator(ctx, []byte("request")); return err }
		n := len(f.Events())
		var err error
		for range 60 {
			time.Sleep(time.Minute)
			err = renew(eve)
		}
		wantCode(t, err, tutti.CodeUnavailable, "operator eve has got 50 certificates within a day")
		if got := len(f.Since(n)); got > 50 {
			t.Errorf("60 renewals are %d events, want at most 50", got)
		}
		if err := renew(bob); err != nil {
			t.Errorf("another operator: %v", err)
		}
		time.Sleep(24 * time.Hour)
		if err := renew(eve); err != nil {
			t.Errorf("a day later: %v", err)
		}
		full = true
		wantCode(t, renew(eve), tutti.CodeUnavailable, "the disk is full")
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// Of each stranger's attempts, the server records one a minute, and counts the others.
func TestStrangersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		for range 1000 {
			f.Denied(t.Context(), "address:192.0.2.1", "finish TLS", tutti.Errorf(tutti.CodeUnauthenticated, "no hello"))
		}
		if got := f.Denials(); len(got) != 1 || got[0] != "address:192.0.2.1: finish TLS" {
			t.Errorf("recorded %q, want one", got)
		}
		time.Sleep(2 * time.Minute)
		var last *tutti.Denied
		for _, e := range f.Events() {
			last = e.Body.(*tutti.Denied)
		}
		if len(f.Events()) != 2 || !strings.Contains(last.Reason, "999 times more within a minute") {
			t.Errorf("%d events, the last %+v: want the number", len(f.Events()), last)
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}
