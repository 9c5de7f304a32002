package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
)

// certificateOf returns a certificate of the CA `site` with the extension `pp_role: web`.
func certificateOf(name tutti.NodeName, serial string) servertest.Certificate {
	return servertest.Certificate{CA: "site", Name: name, NodeCertificate: tutti.NodeCertificate{
		Key: tutti.DigestOf([]byte("key " + serial)), Serial: serial, Ends: time.Now().Add(24 * time.Hour).UTC(),
		Extensions: map[string]string{"pp_role": "web"},
	}}
}

// joins is a fleet that knows the CA `site`.
type joins struct {
	*servertest.Fleet
	t *testing.T
}

const joinFleet = `
fleet: test
environment: {name: production, path: ./code}
groups:
  web: {joined: true}
  more: {joined: true}
  listed: {nodes: [listed-01]}
join:
  - {certname: "web-*", extensions: {pp_role: "w*"}, groups: web}
  - {certname: "listed-*"}
`

func newJoins(t *testing.T) joins {
	t.Helper()
	f := joins{servertest.Start(t), t}
	f.Push(joinFleet)
	f.trust(tutti.JoinCASet{CA: "site", CRL: "0x0009"})
	return f
}

func (f joins) trust(ca tutti.JoinCASet) api.JoinCAView {
	f.t.Helper()
	view, err := f.SetJoinCA(servertest.Operator(), api.SetJoinCA{JoinCASet: ca, NoCRL: ca.CRL == ""})
	if err != nil {
		f.t.Fatal(err)
	}
	return view
}

// The method `ask` asks to join with a certificate and the key of a machine.
func (f joins) ask(c servertest.Certificate, machine string) (joined bool, pending string, err error) {
	answer, err := f.EnrolByCertificate(servertest.Operator(), servertest.Join(c, servertest.Key(machine)))
	return answer.Enrolled != nil, answer.Pending, err
}

func (f joins) mustJoin(c servertest.Certificate, machine string, groups ...tutti.GroupName) {
	f.t.Helper()
	joined, pending, err := f.ask(c, machine)
	if !joined || pending != "" || err != nil {
		f.t.Fatalf("%s: joined %v, pending %q, %v", c.Name, joined, pending, err)
	}
	n := f.node(c.Name)
	if n.Key != servertest.Key(machine) || !slices.Equal(n.Groups, groups) || n.Certificate == nil {
		f.t.Fatalf("the node is %+v, want groups %v", n, groups)
	}
	if diff := cmp.Diff(c.NodeCertificate, *n.Certificate); diff != "" {
		f.t.Fatalf("the certificate of the node: -want +got\n%s", diff)
	}
}

func (f joins) mustWait(c servertest.Certificate, machine, why string) {
	f.t.Helper()
	joined, pending, err := f.ask(c, machine)
	if joined || !strings.Contains(pending, why) || pending == "" || err != nil {
		f.t.Fatalf("%s: joined %v, pending %q (want %q), %v", c.Name, joined, pending, why, err)
	}
}

func (f joins) mustRefuse(c servertest.Certificate, machine string, code tutti.Code, says string) {
	f.t.Helper()
	joined, pending, err := f.ask(c, machine)
	if joined || pending != "" {
		f.t.Fatalf("%s: joined %v, pending %q, want an error with %q", c.Name, joined, pending, says)
	}
	wantCode(f.t, err, code, says)
}

func (f joins) count(is func(tutti.Body) bool) (n int) {
	for _, e := range f.Events() {
		if is(e.Body) {
			n++
		}
	}
	return n
}

func (f joins) node(name tutti.NodeName) api.NodeView {
	f.t.Helper()
	all, err := f.ListNodes(servertest.Operator())
	if err != nil {
		f.t.Fatal(err)
	}
	for _, n := range all {
		if n.Node == name {
			return n
		}
	}
	f.t.Fatalf("no node %s", name)
	return api.NodeView{}
}

// The method `audited` fails if no entry of the audit trail has this reason.
func (f joins) audited(reason string) {
	f.t.Helper()
	if f.count(func(b tutti.Body) bool { d, ok := b.(*tutti.Denied); return ok && strings.Contains(d.Reason, reason) }) == 0 {
		f.t.Errorf("no entry of the audit trail says %q", reason)
	}
}

// TestAMachineJoinsByARule checks that the first rule that fits decides, and that a second request of the same machine
// writes no second event.
func TestAMachineJoinsByARule(t *testing.T) {
	f := newJoins(t)
	web := certificateOf("web-01", "0x0001")
	f.mustJoin(web, "one", "web")
	f.mustJoin(web, "one", "web")
	f.mustJoin(certificateOf("listed-01", "0x0002"), "two", "listed")
	other := certificateOf("web-02", "0x0003")
	other.Extensions = map[string]string{"pp_role": "db"}
	f.mustWait(other, "three", "no rule")
	if got := f.count(func(b tutti.Body) bool { e, ok := b.(*tutti.NodeEnrolled); return ok && e.Node == "web-01" }); got != 1 {
		t.Errorf("%d events say that the node has joined, want 1", got)
	}
	f.Push(strings.Replace(joinFleet, "groups: web}", "groups: [web, more]}", 1) + "  \n")
	f.mustJoin(web, "one", "more", "web") // the rule has other groups now
	renewed := web
	renewed.Serial = "0x0011" // Puppet 8 renews a certificate and keeps its key
	f.mustJoin(renewed, "one", "more", "web")
}

// TestAMachineWaitsForApproval checks that a machine that no rule fits joins only after an approval, that the approval is
// for the certificate's key, and that a rejected machine stays out.
func TestAMachineWaitsForApproval(t *testing.T) {
	f := newJoins(t)
	ctx := servertest.Operator()
	db := certificateOf("db-01", "0x0001")
	for range 3 {
		f.mustWait(db, "one", "no rule")
	}
	if got := f.count(func(b tutti.Body) bool { _, ok := b.(*tutti.NodePending); return ok }); got != 1 {
		t.Errorf("%d events for three requests, want 1", got)
	}
	pending, err := f.ListPending(ctx)
	if err != nil || len(pending) != 1 || pending[0].Node != "db-01" || pending[0].Approved || pending[0].Rejected || pending[0].Certificate.Serial != "0x0001" {
		t.Fatalf("pending %+v, %v", pending, err)
	}
	wantCode(t, f.ApproveNode(ctx, api.ApproveNode{Node: "db-02"}), tutti.CodeNotFound, "tutti node pending")
	wantCode(t, f.ApproveNode(ctx, api.ApproveNode{Node: "db-01", Groups: []tutti.GroupName{"listed"}}), tutti.CodeInvalid, "joined: true")
	other := certificateOf("db-01", "0x0005")
	f.mustWait(other, "another", "no rule")
	wantCode(t, f.ApproveNode(ctx, api.ApproveNode{Node: "db-01"}), tutti.CodeConflict, "--serial: 0x0001, 0x0005")
	wantCode(t, f.RejectNode(ctx, api.RejectNode{Node: "db-01", Serial: "0x0009"}), tutti.CodeNotFound, "0x0001, 0x0005")
	wantCode(t, f.RejectNode(ctx, api.RejectNode{Node: "db-01", Serial: "0x0005"}), "", "")
	f.mustRefuse(other, "another", tutti.CodeRefused, "rejected")
	f.mustWait(db, "one", "no rule")
	groups := []tutti.GroupName{"web", "web"}
	wantCode(t, f.ApproveNode(ctx, api.ApproveNode{Node: "db-01", Serial: "0x0001", Groups: groups}), "", "")
	f.mustRefuse(other, "another", tutti.CodeRefused, "rejected")
	f.mustJoin(db, "one", "web")
	if pending, err = f.ListPending(ctx); err != nil || len(pending) != 1 || !pending[0].Rejected {
		t.Errorf("after the join: pending %+v, %v, want the rejected machine", pending, err)
	}
	for i := range 20 {
		_, _, err = f.ask(certificateOf("db-02", fmt.Sprintf("0x%04X", 100+i)), "many")
	}
	wantCode(t, err, tutti.CodeUnavailable, "too many")
}

// TestCertificatesThatLetNobodyJoin checks the requests that the server refuses.
func TestCertificatesThatLetNobodyJoin(t *testing.T) {
	f := newJoins(t)
	ctx := servertest.Operator()
	foreign, revoked, old := certificateOf("web-01", "0x0001"), certificateOf("web-01", "0x0009"), certificateOf("web-01", "0x0002")
	foreign.CA, old.Ends = "another", time.Now().Add(-time.Hour)
	f.mustRefuse(foreign, "one", tutti.CodeRefused, "another CA")
	f.mustRefuse(revoked, "one", tutti.CodeRefused, "revoked")
	f.mustRefuse(old, "one", tutti.CodeRefused, "ended")
	f.mustRefuse(certificateOf("listed", "0x0003"), "one", tutti.CodeConflict, "has a group")
	f.audited("the certificate is revoked")
	stolen := servertest.Join(certificateOf("web-01", "0x0001"), servertest.Key("one"))
	stolen.Proof = []byte("signed by another key")
	_, err := f.EnrolByCertificate(ctx, stolen)
	wantCode(t, err, tutti.CodeUnauthenticated, "")
	if _, err = f.SetJoinCA(ctx, api.SetJoinCA{Remove: true}); err != nil {
		t.Fatal(err)
	}
	f.mustRefuse(certificateOf("web-01", "0x0001"), "one", tutti.CodeRefused, "trust-ca")
	for _, tc := range []struct {
		in   api.SetJoinCA
		says string
	}{
		{api.SetJoinCA{JoinCASet: tutti.JoinCASet{CA: "site"}}, "--no-crl"},
		{api.SetJoinCA{JoinCASet: tutti.JoinCASet{CA: "site", CRL: "x"}, NoCRL: true}, "--no-crl"},
		{api.SetJoinCA{JoinCASet: tutti.JoinCASet{CA: "site"}, Remove: true}, "not both"},
		{api.SetJoinCA{NoCRL: true}, "missing"},
		{api.SetJoinCA{JoinCASet: tutti.JoinCASet{CA: "broken"}, NoCRL: true}, "not a CA"},
	} {
		_, err := f.SetJoinCA(ctx, tc.in)
		wantCode(t, err, tutti.CodeInvalid, tc.says)
	}
}

// TestAnotherMachineOfTheName checks that a certificate takes over a name only if it has the same public key, or if an
// operator allows it.
func TestAnotherMachineOfTheName(t *testing.T) {
	f := newJoins(t)
	ctx := servertest.Operator()
	web := certificateOf("web-01", "0x0001")
	f.mustJoin(web, "one", "web")
	f.mustJoin(web, "installed again", "web")
	if !slices.Contains(f.Identity.Revoked(), servertest.Key("one")) {
		t.Error("the key of the machine before the installation still counts")
	}
	another := certificateOf("web-01", "0x0002")
	f.mustRefuse(another, "another", tutti.CodeConflict, "tutti node replace web-01")
	wantCode(t, f.ReplaceNode(ctx, "web-01"), "", "")
	f.mustJoin(another, "another", "web")

	f.Join("web-02")
	f.mustRefuse(certificateOf("web-02", "0x0003"), "three", tutti.CodeConflict, "tutti node replace web-02")
	f.mustJoin(certificateOf("web-02", "0x0003"), "web-02", "web") // the machine itself, with the key that it has
	f.mustRefuse(certificateOf("web-03", "0x0004"), "web-02", tutti.CodeRefused, "already belongs to node web-02")

	f.mustJoin(certificateOf("web-04", "0x0006"), "four", "web")
	wantCode(t, f.ReplaceNode(ctx, "web-04"), "", "")
	f.mustJoin(certificateOf("web-04", "0x0007"), "five", "web")

	wantCode(t, f.RemoveNode(ctx, "web-01"), "", "")
	f.mustWait(another, "another", "removed before")
	wantCode(t, f.ApproveNode(ctx, api.ApproveNode{Node: "web-01"}), "", "")
	f.Join("web-01")
	wantCode(t, f.RemoveNode(ctx, "web-01"), "", "")
	f.mustWait(another, "another", "removed before") // the approval was from the time before the removal
	wantCode(t, f.ApproveNode(ctx, api.ApproveNode{Node: "web-01"}), "", "")
	f.mustJoin(another, "another")
}

// TestTheCRLNamesNodes checks that a new CRL names the nodes that it revokes, and that these nodes stay.
func TestTheCRLNamesNodes(t *testing.T) {
	f := newJoins(t)
	f.mustJoin(certificateOf("web-01", "0x0001"), "one", "web")
	f.mustJoin(certificateOf("web-02", "0x0002"), "two", "web")
	if view := f.trust(tutti.JoinCASet{CA: "site", CRL: "0x0002"}); !slices.Equal(view.Revoked, []tutti.NodeName{"web-02"}) {
		t.Errorf("the CRL names %v, want web-02", view.Revoked)
	}
	f.node("web-02")
	f.mustRefuse(certificateOf("web-02", "0x0002"), "two", tutti.CodeRefused, "revoked")
}

// The method `certificates` lets machines ask to join with their Puppet certificates. Afterwards one of them has joined,
// and another one is rejected.
func (p *trimming) certificates(t *testing.T) {
	t.Helper()
	ctx := servertest.Operator()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := p.SetJoinCA(ctx, api.SetJoinCA{JoinCASet: tutti.JoinCASet{CA: "site", CRL: "0x0009"}})
	must(err)
	for i, name := range []tutti.NodeName{"cert-01", "cert-02"} {
		request := servertest.Join(certificateOf(name, fmt.Sprintf("0x%04X", i+1)), servertest.Key(string(name)))
		_, err = p.EnrolByCertificate(ctx, request)
		must(err)
		if i == 1 {
			must(p.RejectNode(ctx, api.RejectNode{Node: name}))
			return
		}
		must(p.ApproveNode(ctx, api.ApproveNode{Node: name}))
		answer, err := p.EnrolByCertificate(ctx, request)
		if must(err); answer.Enrolled == nil {
			t.Fatalf("%s waits: %s", name, answer.Pending)
		}
	}
}

// TestGroupsFollowTheCertificate checks that a group over trusted facts gives grants, is the target of a plan, and follows
// a renewed certificate.
func TestGroupsFollowTheCertificate(t *testing.T) {
	f := newJoins(t)
	f.Push(`
fleet: test
environment: {name: production, path: ./code}
groups:
  shop: {trusted: 'trusted.pp_role == "web"'}
grants:
  - {to: shop, write: [shop/**]}
plans:
  deploy: {steps: [{run: shop}]}
join: [{certname: "*"}]
`)
	web := certificateOf("web-01", "0x0001")
	f.mustJoin(web, "one", "shop")
	if shown, err := f.ShowNode(servertest.Operator(), "web-01"); err != nil || shown.GroupsWhy["shop"] != "by its certificate" {
		t.Errorf("the node is in the groups %v, %v", shown.GroupsWhy, err)
	}
	job, err := f.StartJob(servertest.Operator(), api.StartJob{Plan: "deploy", Mode: tutti.ModeNoop})
	if err != nil {
		t.Fatal(err)
	}
	n := &servertest.Node{Name: "web-01", Key: servertest.Key("one"), Fleet: f.Fleet}
	if order := n.MustClaim(); order.Job != job {
		t.Errorf("the order is %+v, want one of job %s", order, job)
	}
	_, err = f.CreateToken(servertest.Operator(), api.CreateToken{Name: "new-01", Groups: []tutti.GroupName{"shop"}})
	wantCode(t, err, tutti.CodeInvalid, "group shop: the certificate of a node decides")
	renewed := web
	renewed.Serial, renewed.Extensions = "0x0002", map[string]string{"pp_role": "db"}
	f.mustJoin(renewed, "one")
	if n := f.node("web-01"); n.Stands != api.NodeNew {
		t.Errorf("the node has other groups and so other grants, but is %s: %s", n.Stands, n.Why)
	}
	_, err = f.StartJob(servertest.Operator(), api.StartJob{Plan: "deploy", Mode: tutti.ModeNoop})
	wantCode(t, err, tutti.CodeNotFound, `no certificate of a node fits the condition of group "shop"`)
	again := f.Restart()
	if got := (joins{again, t}).node("web-01").Groups; len(got) != 0 {
		t.Errorf("after a restart of the server: %v", got)
	}
}

// TestAJoinByCertificateEndsNoConflict copies a machine. Neither of the two machines can become the node by joining again,
// also not with a renewed certificate or with one in place of its token.
func TestAJoinByCertificateEndsNoConflict(t *testing.T) {
	f := newJoins(t)
	web := certificateOf("web-01", "0x0001")
	f.mustJoin(web, "one", "web")
	f.Join("web-02")
	for name, key := range map[tutti.NodeName]string{"web-01": "one", "web-02": "web-02"} {
		copied(t, &servertest.Node{Name: name, Key: servertest.Key(key), Fleet: f.Fleet})
	}
	renewed := web
	renewed.Serial = "0x0002"
	f.mustRefuse(renewed, "one", tutti.CodeConflict, "tutti node keep web-01")
	f.mustRefuse(renewed, "new key", tutti.CodeConflict, "tutti node keep web-01")
	f.mustRefuse(certificateOf("web-02", "0x0003"), "web-02", tutti.CodeConflict, "tutti node keep web-02")
	wantCode(t, f.ReplaceNode(servertest.Operator(), "web-01"), "", "")
	f.mustJoin(renewed, "one", "web")
}

// TestACAThatBeganAgain checks a site that has made its CA again. The serial numbers begin again, too, so a certificate
// of the new CA can have the serial number of the old one. The extensions of the new certificate count.
func TestACAThatBeganAgain(t *testing.T) {
	f := newJoins(t)
	f.Push("fleet: test\ngroups: {shop: {trusted: 'trusted.pp_role == \"web\"'}}\njoin: [{certname: \"*\"}]\n")
	web := certificateOf("web-01", "0x0001")
	web.Issuer = tutti.DigestOf([]byte("old"))
	f.mustJoin(web, "one", "shop")
	again := web
	again.Issuer, again.Extensions = tutti.DigestOf([]byte("new")), map[string]string{"pp_role": "db"}
	f.mustJoin(again, "one")
	f.mustJoin(again, "one")
	if got := f.count(func(b tutti.Body) bool { _, ok := b.(*tutti.NodeEnrolled); return ok }); got != 2 {
		t.Errorf("%d events for two certificates, want 2", got)
	}
}

// TestAWaitingMachineWithANewerCertificate checks that an operator sees the extensions of the newest certificate of a
// machine that waits, because these extensions decide about groups. The older certificate changes nothing.
func TestAWaitingMachineWithANewerCertificate(t *testing.T) {
	f := newJoins(t)
	old := certificateOf("db-01", "0x0001")
	f.mustWait(old, "one", "no rule")
	first, err := f.ListPending(servertest.Operator())
	if err != nil {
		t.Fatal(err)
	}
	renewed := old
	renewed.Serial, renewed.Ends, renewed.Extensions = "0x0002", old.Ends.Add(time.Hour), map[string]string{"pp_role": "admin"}
	for _, c := range []servertest.Certificate{renewed, old, renewed} {
		f.mustWait(c, "one", "no rule")
	}
	want := slices.Clone(first)
	want[0].Certificate = renewed.NodeCertificate
	pending, err := f.ListPending(servertest.Operator())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, pending); diff != "" {
		t.Errorf("the machines that wait: -want +got\n%s", diff)
	}
	if got := f.count(func(b tutti.Body) bool { _, ok := b.(*tutti.NodePending); return ok }); got != 2 {
		t.Errorf("%d events for two certificates, want 2", got)
	}
}
