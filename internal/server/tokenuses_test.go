package server_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
)

// TestATokenForSeveralMachines checks that as many machines join with a token as it says, that a removed machine does not
// come back with it, and that the other machines stay when the token is revoked.
func TestATokenForSeveralMachines(t *testing.T) {
	f := servertest.Start(t)
	ctx := servertest.Operator()
	for _, in := range []api.CreateToken{{Name: "web-01", Uses: 2}, {Name: "web-*", Uses: -1}, {Name: "web-*", Uses: 10_001}} {
		_, err := f.CreateToken(ctx, in)
		wantCode(t, err, tutti.CodeInvalid, "")
	}
	token := newToken(t, f, api.CreateToken{Name: "web-*", Uses: 3, TTL: time.Hour, Groups: []tutti.GroupName{"web"}})
	enrol := func(name tutti.NodeName, key string) error {
		_, err := f.Enrol(ctx, machine(f, name, key).Request(token))
		return err
	}
	list := func(want string) {
		t.Helper()
		all, err := f.ListTokens(ctx)
		got := "none"
		if len(all) > 0 {
			got = fmt.Sprintf("%d of %d", all[0].Used, all[0].Uses)
		}
		if got != want || err != nil {
			t.Errorf("tokens: %s, %v, want %s", got, err, want)
		}
	}
	list("0 of 3")
	for i := range 2 {
		name := tutti.NodeName(fmt.Sprintf("web-%02d", i+1))
		wantCode(t, enrol(name, string(name)), "", "")
		wantCode(t, enrol(name, string(name)), "", "") // the machine may not have received the answer
	}
	list("2 of 3")
	wantCode(t, enrol("web-01", "another machine"), tutti.CodeConflict, "tutti node replace web-01")
	wantCode(t, enrol("web-09", "web-01"), tutti.CodeRefused, "was used for the name web-01")
	wantCode(t, f.RemoveNode(ctx, "web-01"), "", "")
	wantCode(t, enrol("web-01", "web-01"), tutti.CodeRefused, "no longer in the fleet")
	list("2 of 3")
	f = f.Restart()
	wantCode(t, enrol("web-01", "web-01"), tutti.CodeRefused, "no longer in the fleet")
	wantCode(t, enrol("web-03", "web-03"), "", "")
	list("none")
	wantCode(t, enrol("web-04", "web-04"), tutti.CodeRefused, "all of them have joined")
	wantCode(t, enrol("web-02", "web-02"), "", "") // a machine that has joined can ask again

	token = newToken(t, f, api.CreateToken{Name: "web-*", Uses: 3, TTL: time.Hour})
	wantCode(t, enrol("web-05", "web-05"), "", "")
	wantCode(t, f.RevokeToken(ctx, token.Token), "", "")
	wantCode(t, enrol("web-06", "web-06"), tutti.CodeRefused, "revoked")
	list("none")
	nodes, err := f.ListNodes(ctx)
	if err != nil || len(nodes) != 3 {
		t.Errorf("%d nodes, %v, want web-02, web-03 and web-05", len(nodes), err)
	}
}
