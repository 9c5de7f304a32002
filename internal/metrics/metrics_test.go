package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/metrics"
	"github.com/tutti-project/tutti/internal/promtest"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// measured is a real server with its metrics.
type measured struct {
	*servertest.Fleet
	t      *testing.T
	meters *metrics.Meters
	log    *slowLog
	quiet  promtest.Scrape // a test sets it to what the server printed when all was well
}

// slowLog measures its appends, and needs time for them if the test says so.
type slowLog struct {
	*memory.Log
	meters *metrics.Meters
	needs  time.Duration
}

func (l *slowLog) Append(ctx context.Context, last uint64, events []tutti.Event) (uint64, error) {
	began := time.Now()
	time.Sleep(l.needs) // by the clock of synctest
	seq, err := l.Log.Append(ctx, last, events)
	l.meters.Appended(len(events), time.Since(began))
	return seq, err
}

// start starts a server with metrics.
func start(t *testing.T) *measured {
	t.Helper()
	m := &measured{t: t, meters: metrics.New(metrics.Options{Destinations: []string{"pdb"}})}
	m.log = &slowLog{Log: memory.NewLog(), meters: m.meters}
	m.Fleet = servertest.Start(t, func(o *server.Options) { o.Log, o.Meter = m.log, m.meters })
	m.Log = m.log.Log
	m.meters.Serve(m.Tally)
	return m
}

// The method `scrape` returns what the server prints, with a new overview.
func (m *measured) scrape() promtest.Scrape {
	m.t.Helper()
	time.Sleep(6 * time.Second) // by the clock of synctest: the last overview is too old now
	return m.now()
}

// The method `now` returns what the server prints.
func (m *measured) now() promtest.Scrape {
	m.t.Helper()
	r := httptest.NewRequestWithContext(m.t.Context(), http.MethodGet, "/metrics", http.NoBody)
	w := httptest.NewRecorder()
	m.meters.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusOK {
		m.t.Fatalf("/metrics: %d %s", w.Code, w.Body)
	}
	return promtest.Read(m.t, w.Body.String(), time.Now())
}

// The method `grew` compares how much the counters grew with what the test wants. Counters that did not grow are left
// out.
func (m *measured) grew(before, after promtest.Scrape, prefix string, want map[string]float64) {
	m.t.Helper()
	got := map[string]float64{}
	for key, v := range after.Values {
		was, existed := before.Values[key]
		if !strings.HasPrefix(key, prefix) || strings.Contains(key, "_bucket") || strings.Contains(key, "_sum") {
			continue
		}
		if !existed {
			m.t.Errorf("%s did not exist before it was %v: increase() does not see the first one", key, v)
		}
		if v != was {
			got[key] = v - was
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		m.t.Errorf("%s: -want +got\n%s", prefix, diff)
	}
}

// TestWhatHappensIsCounted runs jobs whose runs end in all ways, and looks at the counters.
func TestWhatHappensIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t)
		before := m.scrape()
		m.Join("web-01")
		m.Join("db-01")
		m.Push(alertFleet)
		m.apply("web-01", func(r *tutti.Result) {
			r.Counts = tutti.Counts{Total: 10, Changed: 2, Failed: 1, Skipped: 3, OutOfSync: 3}
		})
		m.apply("web-01", func(r *tutti.Result) { r.Outcome, r.Reason = tutti.Failed, tutti.BecauseCompile })
		m.apply("web-01", func(r *tutti.Result) { r.Counts = tutti.Counts{Total: 1, Changed: 5} }) // a node that lies
		m.Start("deploy", tutti.ModeNoop)
		m.pass("web-01", nil)
		m.set("shared/x", "9")
		foreign := tutti.Foreign{Result: servertest.Result(servertest.NewRunID(), tutti.Unchanged), Puppet: "8.10.0"}
		report := []byte(`{"host":"db-01"}`)
		foreign.Result.Report = tutti.DigestOf(report)
		message, err := wire.EncodeForeign(foreign, report)
		if err != nil {
			t.Fatal(err)
		}
		m.beat("web-01")
		if _, err := m.Handle(servertest.Operator(), m.Node("db-01").Key, wire.OpForeign, message); err != nil {
			t.Fatal(err)
		}
		job, err := m.StartJob(servertest.Operator(), api.StartJob{Mode: tutti.ModeApply, Converge: &tutti.ConvergeStep{Target: "web"}})
		if err != nil {
			t.Fatal(err)
		}
		order := m.Node("web-01").MustClaim()
		if gated := m.Node("web-01").Gate(wire.Gate{Run: order.Run}); gated.Verdict == tutti.GateHold {
			time.Sleep(time.Second)
			m.Node("web-01").Gate(wire.Gate{Run: order.Run})
		}
		m.Node("web-01").Finish(order.Run)
		synctest.Wait()
		if v := m.Job(job).Verdict; v != tutti.VerdictConverged {
			t.Fatalf("the job ended %q: %s", v, m.Job(job).Message)
		}
		m.Start("deploy", tutti.ModeApply) // nobody claims this run
		time.Sleep(time.Minute)
		m.meters.Denied("operator:ada")
		m.meters.Denied("somebody")
		m.meters.TurnedAway(metrics.DoorNodes, 3)
		after := m.scrape()
		m.grew(before, after, "tutti_runs_total", map[string]float64{
			`tutti_runs_total{mode="apply",outcome="changed",reason=""}`:       3,
			`tutti_runs_total{mode="apply",outcome="failed",reason="compile"}`: 1,
			`tutti_runs_total{mode="apply",outcome="lost",reason=""}`:          1,
			`tutti_runs_total{mode="noop",outcome="changed",reason=""}`:        1,
			`tutti_runs_total{mode="foreign",outcome="unchanged",reason=""}`:   1,
		})
		m.grew(before, after, "tutti_resources_total", map[string]float64{
			`tutti_resources_total{outcome="changed"}`: 7, `tutti_resources_total{outcome="failed"}`: 1,
			`tutti_resources_total{outcome="skipped"}`: 3, `tutti_resources_total{outcome="unchanged"}`: 4,
		})
		m.grew(before, after, "tutti_jobs_total", map[string]float64{
			`tutti_jobs_total{cause="person",kind="plan",verdict="succeeded"}`:     3,
			`tutti_jobs_total{cause="person",kind="plan",verdict="failed"}`:        2,
			`tutti_jobs_total{cause="person",kind="converge",verdict="converged"}`: 1,
		})
		m.grew(before, after, "tutti_joins_total", map[string]float64{`tutti_joins_total{by="token"}`: 2})
		m.grew(before, after, "tutti_denied_total", map[string]float64{`tutti_denied_total{kind="operator"}`: 1, `tutti_denied_total{kind="other"}`: 1})
		m.grew(before, after, "tutti_door_refused_total", map[string]float64{`tutti_door_refused_total{door="nodes"}`: 3})
		m.grew(before, after, "tutti_run_seconds", map[string]float64{
			`tutti_run_seconds_count{phase="compile"}`: 5, `tutti_run_seconds_count{phase="held"}`: 5, `tutti_run_seconds_count{phase="apply"}`: 5,
		})
		m.grew(before, after, "tutti_job_seconds", map[string]float64{"tutti_job_seconds_count": 6})
		if go5 := after.Values[`tutti_gate_total{verdict="go"}`] - before.Values[`tutti_gate_total{verdict="go"}`]; go5 != 5 {
			t.Errorf("the gate said go %v times, want 5", go5)
		}
	})
}

// TestTheGaugesAreTheListOfNodes compares the gauges with `node list`, for nodes in many states.
func TestTheGaugesAreTheListOfNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t)
		names := []string{"good", "failed", "stale", "waiting", "new", "paused", "watched"}
		source := "fleet: shop\nenvironment: {name: production, path: ./code}\ngroups:\n  all: {nodes: [good, failed, stale, waiting, paused]}\n  seen: {nodes: [watched], mode: observe}\nplans: {deploy: {steps: [{run: all}]}}\n"
		for _, n := range names {
			m.Join(tutti.NodeName(n))
		}
		m.Push(source)
		m.set("shared/x", "1")
		m.Start("deploy", tutti.ModeApply)
		for _, n := range names[:6] {
			m.pass(tutti.NodeName(n), func(r *tutti.Result) {
				switch n {
				case "failed":
					r.Outcome, r.Reason = tutti.Failed, tutti.BecauseResources
				case "waiting":
					r.Outcome, r.Waits = tutti.Waiting, []tutti.Wait{{Query: tutti.Query{Kind: tutti.QueryValue, Key: "shared/none"}}}
				}
			})
		}
		m.set("shared/x", "2")
		m.Start("deploy", tutti.ModeApply)
		for _, n := range []tutti.NodeName{"good", "paused"} {
			m.pass(n, nil)
		}
		if _, err := m.Pause(servertest.Operator(), api.Pause{Target: "paused", Reason: "lunch"}); err != nil {
			t.Fatal(err)
		}
		for _, n := range names[:4] {
			m.beat(tutti.NodeName(n))
		}
		got := m.scrape()
		nodes, err := m.ListNodes(servertest.Operator())
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]float64{}
		count := func(key string, is bool) {
			if is {
				want[key]++
			}
		}
		for _, n := range nodes {
			count(fmt.Sprintf("tutti_nodes{state=%q}", n.Stands), true)
			count("tutti_nodes_connected", n.Connected)
			count("tutti_nodes_paused", n.Paused != "")
			for _, g := range n.Groups {
				count(fmt.Sprintf("tutti_group_nodes{group=%q,state=%q}", g, n.Stands), true)
			}
		}
		if len(want) < 10 {
			t.Errorf("the test has lost its edge: %v", want)
		}
		for key, v := range got.Values {
			if name, _, _ := strings.Cut(key, "{"); slices.Contains([]string{"tutti_nodes", "tutti_nodes_connected", "tutti_nodes_paused", "tutti_group_nodes"}, name) && v != want[key] {
				t.Errorf("%s is %v, node list says %v", key, v, want[key])
			}
			delete(want, key)
		}
		if len(want) > 0 {
			t.Errorf("the server does not print %v", slices.Sorted(maps.Keys(want)))
		}
	})
}

// TestNoLabelNamesAnything lets a fleet with telling names do everything that the other tests do. No name is printed.
func TestNoLabelNamesAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t)
		m.Join("web-01")
		m.Push(alertFleet)
		m.apply("web-01", nil)
		m.Start("deploy", tutti.ModeApply)
		order := m.Node("web-01").MustClaim()
		_ = m.Node("web-01").Publish(order.Run, "secret/key", `"hunter2"`)
		m.meters.Denied("operator:ada")
		text := m.scrape().Text
		for _, word := range []string{"web-01", "deploy", `"ada"`, "shared/x", "secret/key", "hunter2", string(order.Run), string(order.Job)} {
			if strings.Contains(text, word) {
				t.Errorf("the server prints %q", word)
			}
		}
		labels := map[string]bool{}
		for _, found := range regexp.MustCompile(`[{,]([a-z]+)="`).FindAllStringSubmatch(text, -1) {
			labels[found[1]] = true
		}
		want := []string{"by", "cause", "class", "door", "group", "kind", "le", "mode", "outcome", "phase", "quantile", "reason", "state", "verdict", "version"}
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(labels))); diff != "" {
			t.Errorf("labels: -want +printed\n%s", diff)
		}
	})
}

// TestAsManySeriesForALargeFleet compares the series of 100 nodes with those of 10,000 nodes, in 100 groups.
func TestAsManySeriesForALargeFleet(t *testing.T) {
	series := func(nodes int) int {
		m := metrics.New(metrics.Options{})
		m.Serve(func(context.Context) (explain.Tally, error) { return overviewOf(t, nodes), nil })
		w := httptest.NewRecorder()
		m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody))
		promtest.CheckMetrics(t, w.Body.String())
		out := len(promtest.Read(t, w.Body.String(), time.Now()).Values)
		for _, group := range []string{"group-30", "group-99"} {
			if strings.Contains(w.Body.String(), group) {
				t.Errorf("%s is printed, want other", group)
			}
		}
		return out
	}
	few, many := series(100), series(10_000)
	if many > few+20 || few > 800 {
		t.Errorf("%d series with 10 nodes and %d with 10,000, want at most 800, and 20 more", few, many)
	}
}

// TestAMissingTallyIsMissing checks that old numbers of the fleet are not printed as if they were good.
func TestAMissingTallyIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := start(t)
		m.Join("web-01")
		if _, printed := m.scrape().Values[`tutti_nodes{state="never ran"}`]; !printed {
			t.Error("the server does not print its nodes")
		}
		asked, began := 0, time.Now()
		m.meters.Serve(func(ctx context.Context) (explain.Tally, error) {
			asked++
			<-ctx.Done()
			return explain.Tally{}, errors.New("the readers see nothing")
		})
		for range 3 { // a failure is remembered as long as an overview
			if _, printed := m.now().Values[`tutti_nodes{state="never ran"}`]; printed {
				t.Error("the server prints old numbers")
			}
		}
		if took := time.Since(began); took > 3*time.Second || asked != 1 {
			t.Errorf("three scrapes took %s and asked %d times, want one deadline", took, asked)
		}
	})
}
