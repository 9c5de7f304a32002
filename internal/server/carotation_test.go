package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The type `turning` is a fleet whose keys can be rotated.
type turning struct {
	*servertest.Fleet
	keys *servertest.Keys
	t    *testing.T
}

func startTurning(t *testing.T) *turning {
	t.Helper()
	keys := servertest.MakeKeys()
	return &turning{servertest.Start(t, withKeys(keys)), keys, t}
}

func withKeys(keys *servertest.Keys) func(*server.Options) {
	return func(o *server.Options) { o.Keys = keys }
}

// The method `again` restarts the server.
func (f *turning) again() *turning {
	f.t.Helper()
	_ = f.Stop()
	return &turning{servertest.Resume(f.t, f.Log, f.Blobs, withKeys(f.keys)), f.keys, f.t}
}

func (f *turning) step(step tutti.RotationStep, leave ...tutti.NodeName) error {
	_, err := f.RotateCA(servertest.Operator(), api.RotateCA{Step: step, Leave: leave, LeaveOperators: nil})
	return err
}

func (f *turning) must(step tutti.RotationStep, leave ...tutti.NodeName) {
	f.t.Helper()
	if err := f.step(step, leave...); err != nil {
		f.t.Fatalf("%s: %v", step, err)
	}
}

func (f *turning) show() api.CARotation {
	f.t.Helper()
	r, err := f.ShowCARotation(servertest.Operator())
	if err != nil {
		f.t.Fatal(err)
	}
	return r
}

// The method `behind` returns a text with the phase, and with the nodes and operators that have not followed.
func (f *turning) behind() string {
	f.t.Helper()
	r := f.show()
	words := []string{string(r.Phase)}
	for _, b := range r.Behind {
		words = append(words, string(b.Node)+b.Operator)
	}
	return strings.Join(words, " ")
}

// The method `phases` returns the phases of the rotation that are in the log.
func (f *turning) phases() (out []tutti.RotationPhase) {
	for _, e := range f.Everything() {
		if b, is := e.Body.(*tutti.CARotated); is {
			out = append(out, b.Phase)
		}
	}
	return out
}

var both = []tutti.Digest{min(servertest.OldKeys.CA, servertest.NewKeys.CA), max(servertest.OldKeys.CA, servertest.NewKeys.CA)}

// The function `stand` tells the server which CAs and which issuer a node trusts, and returns which ones the node
// should trust.
func stand(t *testing.T, n *servertest.Node, issuer string, cas ...tutti.Digest) wire.ToPin {
	t.Helper()
	var out wire.ToPin
	if err := n.Call(wire.OpTrust, tutti.Pinned{CAs: cas, Issuer: issuer}, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRotationSteps(t *testing.T) {
	f := startTurning(t)
	db, web := f.Join("db-01"), f.Join("web-01")
	for _, step := range []tutti.RotationStep{tutti.RotationSwitch, tutti.RotationFinish, tutti.RotationAbandon, "turn"} {
		if err := f.step(step); err == nil {
			t.Errorf("%s before the beginning: no error", step)
		}
	}
	f.must(tutti.RotationBegin)
	f.must(tutti.RotationBegin)
	for _, n := range []*servertest.Node{db, web} {
		if !slices.Contains(f.Bus.Rung(), servertest.Ring{Key: n.Key, Op: wire.RingTrust}) {
			t.Errorf("%s was not rung", n.Name)
		}
	}
	if got := f.behind(); got != "begun db-01 web-01" {
		t.Errorf("begun: %s", got)
	}
	if out := stand(t, db, "AOLD", both...); out.JWT != "" {
		t.Errorf("before the switch it gets a JWT")
	}
	wantCode(t, f.step(tutti.RotationFinish), tutti.CodeConflict, "tutti rotate ca --switch")
	f.must(tutti.RotationSwitch)
	if out := stand(t, db, "AOLD", both...); out.JWT == "" {
		t.Errorf("after the switch it gets no JWT")
	}
	stand(t, db, "ANEXT", both...)
	if got := f.behind(); got != "switched web-01" {
		t.Errorf("switched: %s", got)
	}
	wantCode(t, f.step(tutti.RotationFinish), tutti.CodeConflict, "1 would be locked out: node web-01;")
	wantCode(t, f.step(tutti.RotationFinish, "db-01"), tutti.CodeConflict, "node web-01;")
	wantCode(t, f.step(tutti.RotationFinish, "nobody"), tutti.CodeNotFound, "nobody")
	unused := newToken(t, f.Fleet, api.CreateToken{Name: "x"})
	f.must(tutti.RotationFinish, "web-01")
	f.must(tutti.RotationFinish)
	if f.keys.Settled() != 1 {
		t.Errorf("what stands on the old keys was ended %d times", f.keys.Settled())
	}
	if r := f.show(); !cmp.Equal(r.Left, []tutti.NodeName{"web-01"}) || r.CA != servertest.NewKeys.CA {
		t.Errorf("finished: %+v", r)
	}
	_, err := f.Enrol(t.Context(), machine(f.Fleet, "x", "x").Request(unused))
	wantCode(t, err, tutti.CodeRefused, "revoked")
	if got := f.behind(); got != "finished db-01" { // the node still trusts the old CA
		t.Errorf("finished: %s", got)
	}
	stand(t, db, "ANEXT", servertest.NewKeys.CA)
	if _, err := f.Enrol(t.Context(), web.Request(newToken(t, f.Fleet, api.CreateToken{Name: "web-01"}))); err != nil {
		t.Fatal(err)
	}
	if r := f.show(); len(r.Left)+len(r.Behind) != 0 {
		t.Errorf("who was left has joined again: %+v", r)
	}
	if diff := cmp.Diff([]tutti.RotationPhase{"begun", "switched", "finished"}, f.phases()); diff != "" {
		t.Errorf("in the log: -want +got\n%s", diff)
	}
}

// If nobody has followed a rotation, it can be abandoned at once. If somebody has followed, the
// rotation can be abandoned when all have gone back to the old keys.
func TestARotationIsAbandoned(t *testing.T) {
	f := startTurning(t)
	db := f.Join("db-01")
	f.Join("old-01")
	f.must(tutti.RotationBegin)
	stand(t, db, "AOLD", both...)
	f.must(tutti.RotationAbandon)
	f.must(tutti.RotationAbandon)
	if got := f.behind(); got != "abandoned db-01" {
		t.Errorf("before the switch: %s", got)
	}
	f.must(tutti.RotationBegin)
	f.must(tutti.RotationSwitch)
	stand(t, db, "ANEXT", both...)
	f.must(tutti.RotationAbandon)
	if got := f.behind(); got != "returning db-01" {
		t.Errorf("after the switch: %s", got)
	}
	if out := stand(t, db, "ANEXT", both...); out.JWT == "" {
		t.Error("it gets no JWT of the old keys")
	}
	wantCode(t, f.step(tutti.RotationAbandon), tutti.CodeConflict, "node db-01;")
	f.must(tutti.RotationSwitch)
	f.must(tutti.RotationAbandon)
	stand(t, db, "AOLD", both...)
	f.must(tutti.RotationAbandon)
	if sets, _ := f.keys.KeySets(); sets.Phase != "" || sets.Present != servertest.OldKeys {
		t.Errorf("the keys are %+v", sets)
	}
}

// If a server ends after it has appended a step and before it has changed the keys, the next start changes the keys.
func TestARotationThatIsCutOff(t *testing.T) {
	f := startTurning(t)
	db := f.Join("db-01")
	f.must(tutti.RotationBegin)
	for _, tc := range []struct {
		step tutti.RotationStep
		want tutti.RotationPhase
	}{{tutti.RotationSwitch, tutti.RotationSwitched}, {tutti.RotationFinish, ""}} {
		stand(t, db, "ANEXT", both...)
		f.keys.Fails = fmt.Errorf("the disk is full")
		if err := f.step(tc.step); err == nil || !strings.Contains(err.Error(), "the keys did not follow") {
			t.Errorf("%s: %v", tc.step, err)
		}
		f.keys.Fails = nil
		f = f.again()
		db = f.Node("db-01")
		sets, err := f.keys.KeySets()
		if err != nil || sets.Phase != tc.want {
			t.Errorf("%s: the keys are in the phase %q, %v", tc.step, sets.Phase, err)
		}
	}
	if f.keys.Settled() != 1 {
		t.Errorf("what stands on the old keys was ended %d times", f.keys.Settled())
	}
	if got := f.again().behind(); got != "finished db-01" {
		t.Errorf("at the end: %s", got)
	}
}

// If the server has a key set that the log does not know, it appends the key set. If the log
// has a key set that the server does not have, the server does not serve.
func TestKeysAndLogOfDifferentTimes(t *testing.T) {
	f := startTurning(t)
	if err := f.keys.Rotate(tutti.RotationBegun); err != nil { // the server was killed before the log knew the key set
		t.Fatal(err)
	}
	f = f.again()
	if got := f.behind(); got != "begun" {
		t.Errorf("the log says %s", got)
	}
	f.must(tutti.RotationSwitch)
	_ = f.Stop()
	s := server.New(server.Options{Log: f.Log, Blobs: f.Blobs, Bus: f.Bus, Identity: f.Identity, Keys: servertest.MakeKeys(), NewRunID: servertest.NewRunID})
	err := s.Run(t.Context())
	wantCode(t, err, tutti.CodeDamaged, "come from different times")
}

// When a CA has ended, its certificates are not valid. This must also be true after a start from a
// snapshot.
func TestCertificatesOfACAThatIsGone(t *testing.T) {
	f := startTurning(t)
	for _, name := range []string{"ada", "bob"} {
		if _, err := f.IssueOperator(servertest.Operator(), api.IssueOperator{Operator: name, Request: []byte("request")}); err != nil {
			t.Fatal(err)
		}
	}
	f.must(tutti.RotationBegin)
	f.must(tutti.RotationSwitch)
	if got := f.behind(); got != "switched ada bob" {
		t.Errorf("switched: %s", got)
	}
	_, err := f.RotateCA(servertest.Operator(), api.RotateCA{Step: tutti.RotationFinish, LeaveOperators: []string{"ada", "bob"}, Last: true})
	if err != nil {
		t.Fatal(err)
	}
	operators, err := f.ListOperators(servertest.Operator())
	if err != nil {
		t.Fatal(err)
	}
	for _, op := range operators {
		if op.Certificates != 0 {
			t.Errorf("%s has %d good certificates", op.Operator, op.Certificates)
		}
	}
	if r := f.show(); !cmp.Equal(r.LeftOperators, []string{"ada", "bob"}) {
		t.Errorf("left: %+v", r)
	}
}

// A node that reports a different CA each time must not fill the log.
func TestANodeThatPinsAllTheTime(t *testing.T) {
	f := startTurning(t)
	db := f.Join("db-01")
	f.must(tutti.RotationBegin)
	before, refused := len(f.Everything()), 0
	for i := range 100 {
		err := db.Call(wire.OpTrust, tutti.Pinned{CAs: []tutti.Digest{tutti.DigestOf(fmt.Append(nil, i))}, Issuer: "A"}, nil)
		if tutti.CodeOf(err) == tutti.CodeUnavailable {
			refused++
		}
	}
	if more := len(f.Everything()) - before; more > 40 || refused < 60 {
		t.Errorf("%d events more, %d refused", more, refused)
	}
	if r := f.show(); len(r.Behind) != 2 || !strings.Contains(r.Behind[1].Why, "treat the node as taken over") {
		t.Errorf("a node that trusts another CA: %+v", r.Behind)
	}
	wantCode(t, db.Call(wire.OpTrust, tutti.Pinned{CAs: make([]tutti.Digest, 9)}, nil), tutti.CodeInvalid, "9 CAs")
}

// The method `rotates` takes all steps of a rotation of the keys. The method leaves out everybody who does not
// follow.
func (p *trimming) rotates(t *testing.T) {
	t.Helper()
	ctx := servertest.Operator()
	for _, step := range []tutti.RotationStep{tutti.RotationBegin, tutti.RotationSwitch} {
		if _, err := p.RotateCA(ctx, api.RotateCA{Step: step}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.db.Call(wire.OpTrust, tutti.Pinned{CAs: []tutti.Digest{servertest.NewKeys.CA}, Issuer: servertest.NewKeys.Issuer}, nil); err != nil {
		t.Fatal(err)
	}
	r, err := p.ShowCARotation(ctx)
	if err != nil {
		t.Fatal(err)
	}
	end := api.RotateCA{Step: tutti.RotationFinish, Last: true}
	for _, b := range r.Behind {
		if b.Operator != "" {
			end.LeaveOperators = append(end.LeaveOperators, b.Operator)
		} else {
			end.Leave = append(end.Leave, b.Node)
		}
	}
	if _, err := p.RotateCA(ctx, end); err != nil {
		t.Fatal(err)
	}
}
