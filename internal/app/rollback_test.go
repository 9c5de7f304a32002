package app

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/operator"
)

// shower is a server that shows other code than it was asked for.
type shower struct {
	cli.Server
	change func(*api.CodeKept)
}

func (s shower) GetCode(ctx context.Context, in api.CodeQuery) (api.CodeKept, error) {
	kept, err := s.Server.GetCode(ctx, in)
	s.change(&kept)
	return kept, err
}

// TestARemovedEnvironmentKeepsItsCounter checks that nodes take the code of an environment that was removed and comes back,
// also if another operator pushes it.
func TestARemovedEnvironmentKeepsItsCounter(t *testing.T) {
	p := newPusher(t, startServer(t))
	for _, content := range []string{"one", "two", "three"} {
		if err := p.push("branch", content); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.server.RetireCode(t.Context(), api.RetireCode{Environment: "branch", Remove: true}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(p.conn.OperatorDir, operator.CountersFile)); err != nil {
		t.Fatal(err)
	}
	if err := p.push("branch", "three"); err != nil || p.counters()["branch"] != 4 {
		t.Errorf("counter %d, %v; want one more than before the removal", p.counters()["branch"], err)
	}
}

// TestARollbackSignsOnlySignedCode checks that a server cannot choose what a rollback signs.
func TestARollbackSignsOnlySignedCode(t *testing.T) {
	p := newPusher(t, startServer(t))
	for _, content := range []string{"one", "two"} {
		if err := p.push("production", content); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.push("canary", "other"); err != nil {
		t.Fatal(err)
	}
	kept := func(in api.CodeQuery) api.CodeKept {
		out, err := p.server.GetCode(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first, canary := kept(api.CodeQuery{Environment: "production", Before: true}), kept(api.CodeQuery{Environment: "canary"})
	to := operator.RollbackTo{Environment: "production", Code: first.Code}
	for reason, change := range map[string]func(*api.CodeKept){
		"code that nobody has signed": func(k *api.CodeKept) {
			k.Manifest, _ = json.Marshal(tutti.CodeManifest{Version: 1, Environment: "production", Files: map[string]tutti.CodeFile{}})
		},
		"code of another environment": func(k *api.CodeKept) { k.SignedCode = canary.SignedCode },
		"other code with its own signature": func(k *api.CodeKept) {
			k.SignedCode = kept(api.CodeQuery{Environment: "production"}).SignedCode
		},
		"a changed statement": func(k *api.CodeKept) {
			st := *k.Statement
			st.Body = append([]byte(nil), st.Body...)
			st.Body[len(st.Body)-3] ^= 1
			k.Statement = &st
		},
		"no statement": func(k *api.CodeKept) { k.Statement = nil },
	} {
		_, err := operator.Rollback(t.Context(), shower{p.server, change}, p.conn.OperatorDir, to)
		if tutti.CodeOf(err) != tutti.CodeRefused {
			t.Errorf("%s: %v, want a refusal", reason, err)
		}
	}
	if got := p.counters()["production"]; got != 2 {
		t.Errorf("counter %d after the refusals, want 2", got)
	}
	pushed, err := operator.Rollback(t.Context(), p.server, p.conn.OperatorDir, to)
	if err != nil || pushed.Code != first.Code || p.counters()["production"] != 3 {
		t.Errorf("%+v, %v, counter %d; want the first code with the counter 3", pushed, err, p.counters()["production"])
	}
}
