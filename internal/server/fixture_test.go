package server_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
)

// The constant `hang` is how long a test waits for an event before it fails. Even a slow machine does not
// need this long.
const hang = 3 * time.Minute

// twoSteps is a plan in which the group web follows the group db.
const twoSteps = `
fleet: test
environment: {name: production, path: ./code}
groups:
  all: {joined: true}
  db: {nodes: [db-01]}
  web: {nodes: [web-01, web-02]}
grants:
  - {to: db, write: [db/**], exports: [{type: Database, defined: true, most: 50000}]}
  - {to: web, read: [db/**]}
plans:
  deploy:
    steps:
      - run: db
      - run: web
`

// fixture is a fleet of three nodes with a plan.
type fixture struct {
	*servertest.Fleet
	db, web1, web2 *servertest.Node
}

func newFixture(t *testing.T) fixture {
	t.Helper()
	f := servertest.Start(t)
	out := fixture{Fleet: f, db: f.Join("db-01"), web1: f.Join("web-01"), web2: f.Join("web-02")}
	f.Push(twoSteps)
	return out
}

// The function `started` returns a fixture with a running job. The node db-01 has claimed its run.
func started(t *testing.T, mode tutti.Mode) (fixture, tutti.JobID, tutti.Order) {
	t.Helper()
	f := newFixture(t)
	job := f.Start("deploy", mode)
	return f, job, f.db.MustClaim()
}

// wantCode fails if err does not have this code, or if its text does not contain the argument `says`.
func wantCode(t *testing.T, err error, code tutti.Code, says string) {
	t.Helper()
	if tutti.CodeOf(err) != code || err != nil && !strings.Contains(err.Error(), says) {
		t.Errorf("error %v (code %q), want code %q and %q in it", err, tutti.CodeOf(err), code, says)
	}
}

func wantContains(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q does not say %q", text, part)
	}
}

func wantVerdict(t *testing.T, f *servertest.Fleet, job tutti.JobID, want tutti.Verdict) {
	t.Helper()
	if got := f.Job(job); got.Verdict != want {
		t.Errorf("job %s: verdict %q (%s), want %q", job, got.Verdict, got.Message, want)
	}
}
