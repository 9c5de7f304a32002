package server_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/retain"
	"github.com/tutti-project/tutti/internal/servertest"
)

// The method `codes` returns the listed codes of an environment, each with its state.
func (b branches) codes(t *testing.T, environment string) (out []string) {
	t.Helper()
	list, err := b.ListCode(servertest.Operator(), api.CodeQuery{Environment: environment})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		out = append(out, fmt.Sprintf("%.8s %s", e.Code.Hex(), e.State))
	}
	return out
}

// TestListCode checks the states of codes, and that an operator can name a code by the beginning of its digest.
func TestListCode(t *testing.T) {
	f := branched(t, branchFleet+heldReaction)
	held := f.PushSiteTo("canary", "notify { 'held': }").Code
	want := []string{fmt.Sprintf("%.8s held", held.Hex()), fmt.Sprintf("%.8s released", f.canary.Hex())}
	if diff := cmp.Diff(want, f.codes(t, "canary")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if got := f.codes(t, ""); len(got) != 3 {
		t.Errorf("all environments have %v, want three codes", got)
	}
	kept, err := f.GetCode(servertest.Operator(), api.CodeQuery{Code: f.canary.Hex()[:8]})
	if err != nil || kept.Environment != "canary" || tutti.DigestOf(kept.Manifest) != f.canary {
		t.Errorf("%+v, %v; want the first code of canary", kept.CodeEntry, err)
	}
	for code, want := range map[string]tutti.Code{"12345": tutti.CodeInvalid, "../etc": tutti.CodeInvalid, "ffffffffffff": tutti.CodeNotFound} {
		_, err := f.GetCode(servertest.Operator(), api.CodeQuery{Code: code})
		wantCode(t, err, want, "tutti code list")
	}
	read, err := f.ReadCode(servertest.Operator(), api.CodeQuery{Code: string(f.canary), Path: servertest.CodePath})
	if err != nil || string(read.Content) != "notify { 'canary': }" {
		t.Errorf("%q, %v; want the file of the earlier code", read.Content, err)
	}
}

// TestOnlyTheLastCodesAreKept checks that a snapshot and a sweep keep the last codes of each environment with their files,
// and no others.
func TestOnlyTheLastCodesAreKept(t *testing.T) {
	f := branched(t, branchFleet)
	var pushed []tutti.Digest
	for i := range retain.KeptCodes + 3 {
		pushed = append(pushed, f.PushSiteTo("canary", fmt.Sprintf("notify { 'canary %d': }", i)).Code)
	}
	ledger := retain.New()
	for _, e := range f.Everything() {
		ledger.Add(e)
	}
	kept := map[tutti.Digest]bool{}
	for _, e := range f.Everything() {
		if b, is := e.Body.(*tutti.CodePushed); is && ledger.Needs(e) {
			kept[b.Code] = true
		}
	}
	for i, code := range pushed {
		if want := i >= 3; kept[code] != want {
			t.Errorf("the code %d of %d is kept: %t, want %t", i+1, len(pushed), kept[code], want)
		}
	}
	if !kept[f.production] {
		t.Error("the code of the other environment is not kept")
	}
}

// TestRetireCode checks that retired code is gone from the list and from a snapshot, that the code that nodes use stays,
// and that nobody can remove an environment that is used.
func TestRetireCode(t *testing.T) {
	f := branched(t, branchFleet)
	ctx := servertest.Operator()
	second := f.PushSiteTo("canary", "notify { 'second': }").Code
	third := f.PushSiteTo("canary", "notify { 'third': }").Code
	out, err := f.RetireCode(ctx, api.RetireCode{Environment: "canary", Keep: 2, DryRun: true})
	if err != nil || !cmp.Equal(out.Codes, []tutti.Digest{f.canary}) || len(f.codes(t, "canary")) != 3 {
		t.Fatalf("a dry run retires %v, %v; %v are left", out.Codes, err, f.codes(t, "canary"))
	}
	if _, err = f.RetireCode(ctx, api.RetireCode{Environment: "canary", Keep: 2}); err != nil {
		t.Fatal(err)
	}
	want := []string{fmt.Sprintf("%.8s current", third.Hex()), fmt.Sprintf("%.8s ", second.Hex())}
	if diff := cmp.Diff(want, f.codes(t, "canary")); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	_, err = f.RetireCode(ctx, api.RetireCode{Environment: "canary", Remove: true})
	wantCode(t, err, tutti.CodeConflict, "environment canary is used by group testers")
	_, err = f.RetireCode(ctx, api.RetireCode{Environment: "production", Remove: true})
	wantCode(t, err, tutti.CodeConflict, "environment production is used by the fleet file")
	_, err = f.RetireCode(ctx, api.RetireCode{Environment: "canary"})
	wantCode(t, err, tutti.CodeInvalid, "keep 0 codes")

	// Another group lets the node run puppet apply in this environment.
	setFleet(t, f.Fleet, strings.NewReplacer("fleet: shop\n", "fleet: shop\nmode: agent\n", "  web: {nodes", "  web: {mode: apply, nodes").Replace(branchFleet))
	_, err = f.RetireCode(ctx, api.RetireCode{Environment: "canary", Remove: true})
	wantCode(t, err, tutti.CodeConflict, "environment canary is used by group testers")
	setFleet(t, f.Fleet, branchFleet)

	f.PushSiteTo("merged", "notify { 'merged': }")
	if out, err = f.RetireCode(ctx, api.RetireCode{Environment: "merged", Remove: true}); err != nil || !out.Gone {
		t.Fatalf("%+v, %v", out, err)
	}
	for range 2 {
		if _, err := f.ListCode(ctx, api.CodeQuery{Environment: "merged"}); tutti.CodeOf(err) != tutti.CodeNotFound {
			t.Errorf("the removed environment is listed: %v", err)
		}
		_, err = f.StartJob(ctx, api.StartJob{Runs: &api.NodeRuns{Nodes: []tutti.NodeName{"web-01"}, RunOptions: tutti.RunOptions{Environment: "merged"}}, Mode: tutti.ModeApply})
		wantCode(t, err, tutti.CodeNotFound, `no code was pushed for environment "merged"`)
		f.Fleet = f.Restart()
	}
}
