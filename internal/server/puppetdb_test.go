package server_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const puppetDBFleet = `
fleet: site
mode: agent
environment: {name: production}
groups:
  web: {nodes: [web-01, web-02]}
  own: {nodes: [own-01], mode: apply}
plans:
  deploy: {steps: [{run: web, accept: lost}, {wait: {puppetdb: %[1]q}}]}
  own: {steps: [{run: own}, {wait: {puppetdb: %[1]q}}]}
`

// storedCatalog returns a catalog in the form of PuppetDB's answer.
func storedCatalog(node string, run tutti.RunID, produced time.Duration) string {
	return fmt.Sprintf(`{"certname":%q,"transaction_uuid":%q,"producer_timestamp":%q}`, node, run, time.Now().Add(produced).UTC().Format(time.RFC3339Nano))
}

// A wait for PuppetDB goes on until PuppetDB has the catalogs of exactly these runs, or later catalogs. In each case
// the wait ends with the answer number `enough`, and not earlier.
func TestWaitForPuppetDB(t *testing.T) {
	const before, after, other = -time.Hour, time.Hour, "0b6cfe04-98a2-4a24-8ae4-04e9d5b9f0d7"
	cases := map[string]struct {
		reason  string
		enough  int // number of the answer with which the wait ends
		answers func(one, two tutti.RunID) []string
	}{
		"stored": {"an older catalog, or none, is not the run's", 4, func(one, two tutti.RunID) []string {
			second := storedCatalog("web-02", two, before)
			return []string{
				"",
				second,
				storedCatalog("web-01", other, before) + "," + second,
				storedCatalog("web-01", one, before) + "," + second,
			}
		}},
		"of the other": {"another node's catalog counts for that node only", 2, func(one, two tutti.RunID) []string {
			return []string{
				storedCatalog("web-01", two, before) + "," + storedCatalog("web-02", one, before),
				storedCatalog("web-01", one, before) + "," + storedCatalog("web-02", two, before),
			}
		}},
		"replaced": {"the daemon's next run has another one stored meanwhile", 2, func(one, two tutti.RunID) []string {
			return []string{
				storedCatalog("web-01", other, before) + "," + storedCatalog("web-02", two, before),
				storedCatalog("web-01", other, after) + "," + storedCatalog("web-02", two, before),
				storedCatalog("web-01", one, before) + "," + storedCatalog("web-02", two, before),
			}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			var answers []string
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n := int(asked.Add(1)) - 1
				checkCatalogQuery(t, r)
				fmt.Fprintf(w, "[%s]", answers[min(n, len(answers)-1)])
			}))
			defer s.Close()
			f := servertest.Start(t)
			one, two := f.Join("web-01"), f.Join("web-02")
			setFleet(t, f, fmt.Sprintf(puppetDBFleet, s.URL))
			job := f.Start("deploy", tutti.ModeApply)
			first, second := one.MustClaim(), two.MustClaim()
			answers = tc.answers(first.Run, second.Run)
			one.Gate(wire.Gate{Run: first.Run})
			one.Finish(first.Run)
			two.Gate(wire.Gate{Run: second.Run})
			two.Finish(second.Run)
			if got := end(t, f, job); got.Verdict != tutti.VerdictSucceeded || int(asked.Load()) != tc.enough {
				t.Errorf("%s: verdict %q after %d questions, want success after %d", tc.reason, got.Verdict, asked.Load(), tc.enough)
			}
		})
	}
}

// checkCatalogQuery compares a request to PuppetDB with PuppetDB's query API.
func checkCatalogQuery(t *testing.T, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	const want = `{"query":["extract",["certname","transaction_uuid","producer_timestamp"],["in","certname",["array",["web-01","web-02"]]]]}`
	got := r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type") + " " + string(body)
	if diff := cmp.Diff("POST /pdb/query/v4/catalogs application/json "+want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// An error of PuppetDB does not mean that PuppetDB has the catalogs.
func TestAPuppetDBThatCannotAnswer(t *testing.T) {
	var asked atomic.Int64
	var run tutti.RunID
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		switch asked.Add(1) {
		case 1:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintf(w, "[%s]", storedCatalog("web-01", run, 0))
		case 2:
			fmt.Fprint(w, "PuppetDB is starting")
		default:
			fmt.Fprintf(w, "[%s]", storedCatalog("web-01", run, 0))
		}
	}))
	defer s.Close()
	f := servertest.Start(t)
	one := f.Join("web-01")
	setFleet(t, f, strings.ReplaceAll(fmt.Sprintf(puppetDBFleet, s.URL), "web-01, web-02", "web-01"))
	job := f.Start("deploy", tutti.ModeApply)
	run = one.MustClaim().Run
	one.Gate(wire.Gate{Run: run})
	one.Finish(run)
	if got := end(t, f, job); got.Verdict != tutti.VerdictSucceeded || asked.Load() != 3 {
		t.Errorf("verdict %q after %d questions, want success after the third", got.Verdict, asked.Load())
	}
}

// If a wait for PuppetDB times out, the message names the nodes whose catalogs are missing.
func TestAWaitForPuppetDBInVainNamesTheNodes(t *testing.T) {
	var run tutti.RunID
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "[%s]", storedCatalog("web-02", run, -time.Hour))
	}))
	defer s.Close()
	f := servertest.Start(t)
	one, two := f.Join("web-01"), f.Join("web-02")
	setFleet(t, f, strings.ReplaceAll(fmt.Sprintf(puppetDBFleet, s.URL), s.URL+`"}`, s.URL+`", timeout: 1s}`))
	job := f.Start("deploy", tutti.ModeApply)
	first, second := one.MustClaim(), two.MustClaim()
	run = second.Run
	one.Gate(wire.Gate{Run: first.Run})
	one.Finish(first.Run)
	two.Gate(wire.Gate{Run: second.Run})
	two.Finish(second.Run)
	if got := end(t, f, job); got.Verdict != tutti.VerdictFailed {
		t.Errorf("verdict %q", got.Verdict)
	}
	want := fmt.Sprintf("waited 1s for the catalogs in PuppetDB %[1]s; the last answer: the catalogs of 1 of 2 nodes are not stored yet: web-01", s.URL)
	if got := inVain(f); got != want {
		t.Errorf("step ended with %q, want %q", got, want)
	}
}

// Runs with the fleet's own code have no catalog in PuppetDB, so the server sends PuppetDB no request.
func TestNoCatalogIsWaitedForWithoutThePuppetServer(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked %s", r.URL) }))
	defer s.Close()
	f := servertest.Start(t)
	own := f.Join("own-01")
	f.Push(fmt.Sprintf(puppetDBFleet, s.URL))
	job := f.Start("own", tutti.ModeApply)
	o := own.MustClaim()
	own.Gate(wire.Gate{Run: o.Run})
	own.Finish(o.Run)
	if got := end(t, f, job); got.Verdict != tutti.VerdictSucceeded {
		t.Errorf("job %s: %s", got.Verdict, got.Message)
	}
}
