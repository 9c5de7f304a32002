package server_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

func TestANodeGetsTheCodeOfItsRunAndNothingElse(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	other := f.PushSite("notify { 'of tomorrow': }\n")
	fleetFile := tutti.DigestOf([]byte(twoSteps))
	if _, err := f.PutBlob(servertest.Operator(), []byte("secret")); err != nil {
		t.Fatal(err)
	}
	var signed tutti.SignedCode
	if err := f.db.Call(wire.OpCode, wire.CodeGet{Run: order.Run, Code: order.Code}, &signed); err != nil || tutti.DigestOf(signed.Manifest) != order.Code {
		t.Errorf("its own code: %v", err)
	}
	wantCode(t, f.db.Call(wire.OpCode, wire.CodeGet{Run: order.Run, Code: other.Code}, nil), tutti.CodeRefused, "was not told")
	cases := map[string]struct {
		reason string
		digest tutti.Digest
		code   tutti.Code
	}{
		"its own file": {"a file of its code", tutti.DigestOf([]byte(servertest.CodeContent)), ""},
		"other code":   {"a file of code that it was not told to run", tutti.DigestOf([]byte("notify { 'of tomorrow': }\n")), tutti.CodeRefused},
		"another blob": {"the server keeps more than code", tutti.DigestOf([]byte("secret")), tutti.CodeRefused},
		"the manifest": {"it comes with its signature only", other.Signed, tutti.CodeRefused},
		"the fleet":    {"no node's business", fleetFile, tutti.CodeRefused},
		"nothing":      {"no digest", "", tutti.CodeRefused},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			raw := []byte(`{"run":"` + string(order.Run) + `","digest":"` + string(tc.digest) + `"}`)
			got, err := f.Handle(t.Context(), f.db.Key, wire.OpBlobGet, raw)
			wantCode(t, err, tc.code, "")
			if tc.code == "" && tutti.DigestOf(got) != tc.digest {
				t.Errorf("%s: came with digest %s", tc.reason, tutti.DigestOf(got))
			}
		})
	}
	f.db.Gate(wire.Gate{Run: order.Run})
	f.db.Finish(order.Run)
	wantCode(t, f.db.Call(wire.OpCode, wire.CodeGet{Run: order.Run, Code: order.Code}, nil), tutti.CodeConflict, "has ended")
}

func TestWhatCannotBePushed(t *testing.T) {
	manifest := func(content string) tutti.SignedCode {
		return servertest.Sign(tutti.CodeManifest{Version: 1, Environment: "production", Files: map[string]tutti.CodeFile{
			"manifests/site.pp": {Digest: tutti.DigestOf([]byte(content))},
		}})
	}
	forged := manifest("here")
	forged.Signature = []byte("signed by somebody")
	cases := map[string]struct {
		in   tutti.SignedCode
		code tutti.Code
		says string
	}{
		"all there":    {manifest("here"), "", ""},
		"a file lacks": {manifest("not here"), tutti.CodeConflict, "manifests/site.pp"},
		"forged":       {forged, tutti.CodeRefused, "not signed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := servertest.Start(t)
			if _, err := f.PutBlob(servertest.Operator(), []byte("here")); err != nil {
				t.Fatal(err)
			}
			_, err := f.PushCode(servertest.Operator(), tutti.CodePush{SignedCode: tc.in})
			wantCode(t, err, tc.code, tc.says)
			if (len(f.Events()) == 1) != (tc.code == "") {
				t.Errorf("log %v", servertest.Kinds(f.Events()))
			}
		})
	}
}

func TestPushingTheSameIsNoEvent(t *testing.T) {
	f := servertest.Start(t)
	f.Push(twoSteps)
	n := len(f.Events())
	f.Push(twoSteps)
	if got := f.Since(n); len(got) != 0 {
		t.Errorf("appended %v, want nothing", got)
	}
	f.PushSite("other")
	f.PushSite(servertest.CodeContent) // push the first content of the site again
	if diff := cmp.Diff([]string{"code.pushed", "code.pushed"}, f.Since(n)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestABadFleetFileChangesNothing(t *testing.T) {
	f := newFixture(t)
	n := len(f.Events())
	_, err := f.SetFleet(servertest.Operator(), api.FleetSource{File: "my.yaml", Source: []byte("fleet: test\nplans: 3\n")})
	wantCode(t, err, tutti.CodeInvalid, "my.yaml:2")
	if got, err := f.GetFleet(servertest.Operator()); err != nil || got.Name != "test" || len(f.Since(n)) != 0 {
		t.Errorf("fleet %q, %v, appended %v: want what was there", got.Name, err, f.Since(n))
	}
	_, err = servertest.Start(t).GetFleet(servertest.Operator())
	wantCode(t, err, tutti.CodeNotFound, "tutti code push")
}

func TestMissingBlobs(t *testing.T) {
	f := servertest.Start(t)
	here, err := f.PutBlob(servertest.Operator(), []byte("here"))
	if err != nil {
		t.Fatal(err)
	}
	gone := tutti.DigestOf([]byte("gone"))
	got, err := f.MissingBlobs(servertest.Operator(), []tutti.Digest{here, gone})
	if err != nil || !cmp.Equal([]tutti.Digest{gone}, got) {
		t.Errorf("missing %v, %v, want %s", got, err, gone)
	}
	_, err = f.MissingBlobs(servertest.Operator(), []tutti.Digest{"../x"})
	wantCode(t, err, tutti.CodeInvalid, "digest")
}
