package server_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
)

// TestAThiefOfTheCADoesNotFollow checks a thief who has the old CA and can make a certificate with any name. During a
// rotation the thief gets no certificate of the new CA, for himself or for another operator.
func TestAThiefOfTheCADoesNotFollow(t *testing.T) {
	f := startTurning(t)
	visit := func(name, serial string) context.Context {
		t.Helper()
		inside, leave, err := f.Admit(t.Context(), name, serial)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(leave)
		return inside
	}
	own, leave := issue(t, f.Fleet, "bob")
	defer leave()
	calls := map[string]func(thief context.Context) error{
		"renew a certificate": func(thief context.Context) error { _, err := f.RenewOperator(thief, []byte("request")); return err },
		"follow":              func(thief context.Context) error { _, err := f.FollowRotation(thief, []byte("request")); return err },
		"revoke operator bob": func(thief context.Context) error {
			_, err := f.RevokeOperator(thief, api.RevokeOperator{Operator: "bob", Last: true})
			return err
		},
		"rotate the keys of the server": func(thief context.Context) error {
			_, err := f.RotateCA(thief, api.RotateCA{Step: tutti.RotationBegin})
			return err
		},
		"push a fleet file": func(thief context.Context) error {
			_, err := f.SetFleet(thief, api.FleetSource{File: "tutti.yaml", Source: []byte("fleet: shop\naccess: [{to: bob, may: admin}]\n")})
			return err
		},
		"push code": func(thief context.Context) error {
			_, err := f.PushCode(thief, tutti.CodePush{SignedCode: servertest.Sign(tutti.CodeManifest{Version: 1, Environment: "other"})})
			return err
		},
		"release code":        func(thief context.Context) error { _, err := f.ReleaseCode(thief, ""); return err },
		"remove node web-01":  func(thief context.Context) error { return f.RemoveNode(thief, "web-01") },
		"replace node web-01": func(thief context.Context) error { return f.ReplaceNode(thief, "web-01") },
		"keep node web-01":    func(thief context.Context) error { return f.KeepNode(thief, api.KeepNode{Node: "web-01"}) },
		"make a token for web-02": func(thief context.Context) error {
			_, err := f.CreateToken(thief, api.CreateToken{Name: "web-02"})
			return err
		},
		"revoke the token x": func(thief context.Context) error { return f.RevokeToken(thief, "x") },
		"set shared/x":       func(thief context.Context) error { return f.SetValue(thief, "shared/x", []byte("1")) },
		"unset shared/x":     func(thief context.Context) error { return f.UnsetValue(thief, "shared/x") },
		"pause web-01": func(thief context.Context) error {
			_, err := f.Pause(thief, api.Pause{Target: "web-01", Reason: "x"})
			return err
		},
		"disable Puppet": func(thief context.Context) error {
			return f.AskNodes(thief, api.NodesQuestion{Action: tutti.RemoteDisable, On: "connected"}, func([]api.NodeAnswer) error { return nil })
		},
		"unpause web-01": func(thief context.Context) error { return f.Unpause(thief, "web-01") },
		"say which code keys sign": func(thief context.Context) error {
			return f.TrustKeys(thief, servertest.State(tutti.StatementTrust, tutti.Trusted{}, "operator"))
		},
		"say who signs actions": func(thief context.Context) error {
			return f.TrustOperators(thief, servertest.State(tutti.StatementOperators, tutti.Trusted{}, "operator"))
		},
		"let operator mallory in": func(thief context.Context) error {
			_, err := f.IssueOperator(thief, api.IssueOperator{Operator: "mallory", Request: []byte("request"), Follows: true})
			return err
		},
	}
	// Before a rotation, and after an abandoned rotation, a thief cannot make changes that remain when the
	// certificate of the thief has ended.
	tries := func(when string) {
		t.Helper()
		thief := visit("bob", "made-with-the-stolen-CA")
		for what, call := range calls {
			n := len(f.Events())
			wantCode(t, call(thief), tutti.CodeRefused, "tutti operator create bob")
			if got := f.Since(n); slices.ContainsFunc(got, func(kind string) bool { return kind != "audit.denied" }) {
				t.Errorf("%s %s: appended %v; want nothing but refusals", what, when, got)
			}
		}
	}
	tries("before")
	inside := visit("bob", "made-with-the-stolen-CA")
	for _, step := range []tutti.RotationStep{tutti.RotationBegin, tutti.RotationSwitch} {
		f.must(step)
		if context.Cause(inside) == nil {
			t.Errorf("%s: what goes on with the certificate has not ended", step)
		}
		_, _, err := f.Admit(t.Context(), "bob", "made-with-the-stolen-CA", tutti.VerbView)
		wantCode(t, err, tutti.CodeRefused, "tutti operator create bob")
		if r := f.show(); len(r.Behind) == 0 || !strings.Contains(r.Behind[len(r.Behind)-1].Why, "made-with-the-stolen-CA") {
			t.Errorf("%s: --status does not name the certificate: %+v", step, r.Behind)
		}
	}
	if _, err := f.FollowRotation(own, []byte("request")); err != nil {
		t.Errorf("bob, with the certificate that he was issued: %v", err)
	}
	if r := f.show(); slices.ContainsFunc(r.Behind, func(b api.BehindRotation) bool { return strings.Contains(b.Why, "stolen") }) {
		t.Errorf("when bob has a new certificate: %+v", r.Behind)
	}
	f.must(tutti.RotationAbandon)
	tries("after")
	if got := f.Denials(); !slices.Contains(got, "operator:bob: renew a certificate") || !slices.Contains(got, "operator:bob: let operator mallory in") {
		t.Errorf("in the audit trail: %q", got)
	}
}

// The first operator's certificate comes with the server, and the log has this certificate. A log of an earlier
// release that knows only the operator must also get this certificate.
func TestTheFirstCertificateFollows(t *testing.T) {
	first := &tutti.OperatorIssued{Operator: "ada", Serial: "first", Expires: time.Now().AddDate(1, 0, 0)}
	keys := servertest.MakeKeys()
	f := &turning{servertest.Start(t, withKeys(keys)), keys, t}
	if _, err := f.IssueOperator(servertest.Operator(), api.IssueOperator{Operator: "ada", Request: []byte("request")}); err != nil {
		t.Fatal(err)
	}
	_ = f.Stop()
	f.Fleet = servertest.Resume(t, f.Log, f.Blobs, withKeys(keys), func(o *server.Options) { o.FirstOperator = first })
	f.must(tutti.RotationBegin)
	ada, leave, err := f.Admit(t.Context(), "ada", "first")
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	if _, err := f.FollowRotation(ada, []byte("request")); err != nil {
		t.Errorf("ada, with the first certificate: %v", err)
	}
}

// TestTheEndOfARotationLeavesSomebody checks a step after which no operator or no admin could connect. The request must
// name everybody who has not followed. Like a revocation, the request needs the option --last.
func TestTheEndOfARotationLeavesSomebody(t *testing.T) {
	// The operator cy has followed.
	cy := &tutti.OperatorIssued{Operator: "cy", Serial: "of cy", Expires: time.Now().AddDate(1, 0, 0), CA: servertest.NewKeys.CA}
	for _, tc := range []struct {
		reason  string
		follows *tutti.OperatorIssued
		access  string
		refused string
	}{
		{"nobody follows", nil, "", "nobody is known to have a certificate"},
		{"somebody follows", cy, "", ""},
		{"somebody who is not admin", cy, "access: [{to: [ada, bob], may: admin}]\n", "no admin has a valid certificate"},
		{"somebody who is", cy, "access: [{to: [ada, cy], may: admin}]\n", ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			keys := servertest.MakeKeys()
			f := &turning{servertest.Start(t, withKeys(keys), func(o *server.Options) { o.FirstOperator = tc.follows }), keys, t}
			for _, name := range []string{"ada", "bob"} {
				_, leave := issue(t, f.Fleet, name)
				leave()
			}
			f.Push("fleet: shop\ngroups: {web: {nodes: [web-01]}}\n" + tc.access)
			f.must(tutti.RotationBegin)
			f.must(tutti.RotationSwitch)
			end := api.RotateCA{Step: tutti.RotationFinish, LeaveOperators: []string{"ada", "bob"}}
			if tc.refused != "" {
				_, err := f.RotateCA(servertest.Operator(), end)
				wantCode(t, err, tutti.CodeConflict, tc.refused)
				wantCode(t, err, tutti.CodeConflict, "--last")
				end.Last = true
			}
			if _, err := f.RotateCA(servertest.Operator(), end); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAnEndedCertificateIsUnknown checks a certificate that has ended. Whoever stole the CA can make a certificate with
// the same number and a later end. So the server treats an ended certificate like a certificate that the log does not
// know.
func TestAnEndedCertificateIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startTurning(t)
		own, leave := issue(t, f.Fleet, "bob")
		defer leave()
		out, err := f.IssueOperator(servertest.Operator(), api.IssueOperator{Operator: "bob", Request: []byte("request")})
		if err != nil {
			t.Fatal(err)
		}
		renew := func(who context.Context) error { _, err := f.RenewOperator(who, []byte("request")); return err }
		if err := renew(own); err != nil {
			t.Errorf("while it is good: %v", err)
		}
		time.Sleep(servertest.OperatorLife)
		wantCode(t, renew(own), tutti.CodeRefused, "or it has ended")
		again, leave, err := f.Admit(t.Context(), "bob", out.Serial)
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		wantCode(t, renew(again), tutti.CodeRefused, "or it has ended")
		f.must(tutti.RotationBegin)
		_, _, err = f.Admit(t.Context(), "bob", out.Serial)
		wantCode(t, err, tutti.CodeRefused, "or it has ended")
		f.must(tutti.RotationAbandon)
		if _, err := f.RevokeOperator(servertest.Operator(), api.RevokeOperator{Operator: "bob", Last: true}); err != nil {
			t.Fatal(err)
		}
		if out, err = f.IssueOperator(servertest.Operator(), api.IssueOperator{Operator: "bob", Request: []byte("request")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(servertest.OperatorLife)
		_, _, err = f.Admit(t.Context(), "bob", out.Serial)
		wantCode(t, err, tutti.CodeUnauthenticated, "was revoked")
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}
