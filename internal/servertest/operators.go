package servertest

import (
	"slices"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// TestTokens is the contract of api.Tokens.
func TestTokens(t *testing.T, side Side) {
	f := Start(t)
	server, ctx := side(t, f), Operator()
	later, err := server.CreateToken(ctx, api.CreateToken{Name: "web-*", TTL: 2 * time.Hour, Groups: []tutti.GroupName{"web"}})
	if err != nil {
		t.Fatal(err)
	}
	first, err := server.CreateToken(ctx, api.CreateToken{Name: "db-01", TTL: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := server.ListTokens(ctx)
	want(t, "tokens, the first to end first", []api.TokenView{
		{Token: first.Token, Name: "db-01", Expires: first.Expires, Uses: 1},
		{Token: later.Token, Name: "web-*", Groups: []tutti.GroupName{"web"}, Expires: later.Expires, Uses: 1},
	}, tokens, err)
	wantCode(t, "revoke no token", server.RevokeToken(ctx, "nothing"), tutti.CodeNotFound)
	wantCode(t, "revoke", server.RevokeToken(ctx, first.Token), "")
	wantCode(t, "revoke again", server.RevokeToken(ctx, first.Token), "")
	db := &Node{Name: "db-01", Key: Key("db-01"), Fleet: f}
	_, err = server.Enrol(ctx, db.Request(first))
	wantCode(t, "join with a revoked token", err, tutti.CodeRefused)
	web := &Node{Name: "web-01", Key: Key("web-01"), Fleet: f}
	_, err = server.Enrol(ctx, web.Request(later))
	wantCode(t, "join with the other token", err, "")
	wantCode(t, "revoke a token that was used", server.RevokeToken(ctx, later.Token), tutti.CodeConflict)
	tokens, err = server.ListTokens(ctx)
	want(t, "the number of tokens that are left", 0, len(tokens), err)
	want(t, "log", []string{"token.created", "token.created", "token.revoked", "audit.denied", "node.enrolled"}, Kinds(f.Events()), nil)
}

// TestOperators is the contract of api.Operators. As in Identity, a certificate request is the word
// `request`.
func TestOperators(t *testing.T, side Side) {
	f := Start(t)
	_, err := f.IssueOperator(Operator(), api.IssueOperator{Operator: "ada", Request: []byte("request")})
	wantCode(t, "who asks", err, "")
	server, ctx := side(t, f), Operator()
	_, err = server.IssueOperator(ctx, api.IssueOperator{Operator: "bob", Request: []byte("nothing")})
	wantCode(t, "a request that is not valid", err, tutti.CodeInvalid)
	_, err = server.IssueOperator(ctx, api.IssueOperator{Operator: "local", Request: []byte("request")})
	wantCode(t, "the name that the socket's operator has", err, tutti.CodeInvalid)
	bob, err := server.IssueOperator(ctx, api.IssueOperator{Operator: "bob", Request: []byte("request"), CodeKey: true})
	want(t, "issued", "bob", string(bob.Certificate), err)
	mine, err := server.RenewOperator(ctx, []byte("request"))
	want(t, "renewed", "ada", string(mine.Certificate), err)
	list, err := server.ListOperators(ctx)
	want(t, "operators", []api.OperatorView{
		{Operator: "ada", Certificates: 2, Expires: mine.Expires},
		{Operator: "bob", Certificates: 1, Expires: bob.Expires, CodeKey: true},
	}, list, err)

	revoke := func(in api.RevokeOperator) error {
		out, err := server.RevokeOperator(ctx, in)
		if err == nil && (out.Cancelled == nil || out.GoOn == nil) {
			t.Errorf("revoke %s: no lists of jobs, like a server of an earlier release: %+v", in.Operator, out)
		}
		return err
	}
	wantCode(t, "revoke nobody", revoke(api.RevokeOperator{Operator: "eve"}), tutti.CodeNotFound)
	wantCode(t, "revoke", revoke(api.RevokeOperator{Operator: "bob", Reason: "has left"}), "")
	_, _, err = f.Admit(ctx, "bob", bob.Serial)
	wantCode(t, "a revoked certificate", err, tutti.CodeUnauthenticated)
	again, err := server.IssueOperator(ctx, api.IssueOperator{Operator: "bob", Request: []byte("request")})
	wantCode(t, "issue anew", err, "")
	if _, leave, err := f.Admit(ctx, "bob", again.Serial); err != nil {
		t.Errorf("a certificate issued after the revocation: %v", err)
	} else {
		leave()
	}
	_, _, err = f.Admit(ctx, "bob", bob.Serial)
	wantCode(t, "the revoked certificate after a new one was issued", err, tutti.CodeUnauthenticated)

	wantCode(t, "revoke bob again", revoke(api.RevokeOperator{Operator: "bob"}), "")
	wantCode(t, "revoke the last operator, who calls", revoke(api.RevokeOperator{Operator: "ada"}), tutti.CodeConflict)
	wantCode(t, "and mean it", revoke(api.RevokeOperator{Operator: "ada", Last: true}), "")
	for _, e := range f.Events() {
		if slices.Contains([]string{"operator.issued", "operator.revoked"}, e.Body.Kind()) && e.By != "operator:ada" {
			t.Errorf("%s by %q, want operator:ada", e.Body.Kind(), e.By)
		}
	}
}
