package server_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/metrics"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// wantFold folds the events of the log up to a version again, and fails if the result differs from
// the version.
func wantFold(t *testing.T, f *servertest.Fleet, version server.State) {
	t.Helper()
	events := f.Everything()[:version.Seq()]
	if err := server.Hydrate(f.Blobs, events); err != nil {
		t.Fatal(err)
	}
	if diff := server.Fold(events).Diff(version, time.Time{}); diff != "" {
		t.Fatalf("the version at %d: -fold of the log +version\n%s\nlog: %v", version.Seq(), diff, describeAll(events))
	}
}

// TestAVersionIsTheFoldOfTheLog checks the versions that readers see. Each version is the fold of the log up to one
// event. A version includes everything that was acknowledged before, and does not change while somebody reads it.
func TestAVersionIsTheFoldOfTheLog(t *testing.T) {
	later := 0
	rapid.Check(t, func(rt *rapid.T) {
		f := servertest.Start(t, func(o *server.Options) {
			o.Keep, o.Logger, o.Silence = engine.Keep{Jobs: 2, Runs: 3}, slog.New(slog.DiscardHandler), time.Hour
		})
		defer func() { _ = f.Stop() }()
		a := &anything{Fleet: f, machines: map[tutti.NodeName]int{}}
		a.join("db-01", time.Hour)
		a.Push(anyFleet)
		for range rapid.IntRange(1, 8).Draw(rt, "looks") {
			acknowledged := uint64(len(f.Everything()))
			err := f.Look(t.Context(), func(version server.State) {
				if version.Seq() < acknowledged {
					rt.Fatalf("a look after event %d sees %d", acknowledged, version.Seq())
				}
				seq := version.Seq()
				for range rapid.IntRange(0, 10).Draw(rt, "steps") { // no reader looks during these steps
					a.step(rt)
				}
				if version.Seq() != seq {
					rt.Fatalf("the version is of event %d, and was of %d", version.Seq(), seq)
				}
				later += len(f.Everything()) - int(seq)
				wantFold(t, f, version)
			})
			if err != nil {
				rt.Fatal(err)
			}
		}
	})
	if later < 100 {
		t.Errorf("%d events while somebody looked: this test has lost its edge", later)
	}
}

// TestReadersDoNotQueueAtTheWriter checks that readers get answers while the writer waits
// for its log. Readers see only what is on disk.
func TestReadersDoNotQueueAtTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &heldLog{Log: memory.NewLog(), pass: make(chan struct{})}
		meters := metrics.New(metrics.Options{})
		f := servertest.Start(t, func(o *server.Options) { o.Log, o.Meter = log, meters })
		f.Log = log.Log
		meters.Serve(f.Tally)
		f.Join("db-01")
		f.Push(suiteOf("db-01"))
		job := f.Start("deploy", tutti.ModeApply)
		run := f.Node("db-01").MustClaim().Run
		set := func(value string) {
			if err := f.SetValue(servertest.Operator(), "shared/x", json.RawMessage(value)); err != nil {
				t.Error(err)
			}
		}
		set("1")
		log.hold.Store(true)
		var writing sync.WaitGroup
		writing.Go(func() { set("2") })
		synctest.Wait() // the append is still waiting

		ctx, cancel := context.WithTimeout(servertest.Operator(), time.Second)
		defer cancel()
		ask := func(op string, in any) error { return f.Node("db-01").CallWithin(ctx, op, in, nil) }
		for name, err := range map[string]error{
			"ask":   ask(wire.OpAsk, wire.Question{Run: run, Query: tutti.Query{Kind: tutti.QueryValue, Key: "shared/x"}}),
			"hiera": ask(wire.OpHiera, wire.HieraQuestion{Run: run}),
		} {
			if err != nil {
				t.Errorf("a node's %s while the writer waits: %v", name, err)
			}
		}
		for name, err := range lookEverywhere(ctx, f, job, run) {
			if code := tutti.CodeOf(err); err != nil && code != tutti.CodeNotFound {
				t.Errorf("%s while the writer waits: %v", name, err)
			}
		}
		scrape, began := httptest.NewRecorder(), time.Now()
		meters.Handler().ServeHTTP(scrape, httptest.NewRequestWithContext(ctx, http.MethodGet, "/metrics", http.NoBody))
		if took := time.Since(began); took != 0 || !strings.Contains(scrape.Body.String(), "tutti_nodes_running 1\n") {
			t.Errorf("a scrape while the writer waits took %s: %d\n%s", took, scrape.Code, scrape.Body)
		}
		values, err := f.ListValues(ctx, "shared/x")
		if err != nil || len(values) != 1 || string(values[0].Value) != "1" {
			t.Errorf("before the append has ended: %v, %v", values, err)
		}
		log.hold.Store(false)
		close(log.pass)
		writing.Wait()
		values, err = f.ListValues(ctx, "shared/x")
		if err != nil || len(values) != 1 || string(values[0].Value) != "2" {
			t.Errorf("after it was acknowledged: %v, %v", values, err)
		}
	})
}

// lookEverywhere makes all calls that only read.
func lookEverywhere(ctx context.Context, f *servertest.Fleet, job tutti.JobID, run tutti.RunID) map[string]error {
	out := readEverywhere(ctx, f.Reader, job, run)
	out["WatchJob"] = f.WatchJob(ctx, api.WatchJob{Job: job}, func(api.Watched) error { return nil })
	out["WatchFleet"] = (&viewer{}).watch(ctx, f, func() bool { return true })
	_, out["Tally"] = f.Tally(ctx)
	out["ReadAudit"] = f.ReadAudit(ctx, api.ReadAudit{}, func(api.AuditEntry) error { return nil })
	return out
}

// readEverywhere makes all calls of a reader.
func readEverywhere(ctx context.Context, rd *explain.Reader, job tutti.JobID, run tutti.RunID) map[string]error {
	calls := map[string]func() (any, error){
		"GetFleet":      func() (any, error) { return rd.GetFleet(ctx) },
		"ListNodes":     func() (any, error) { return rd.ListNodes(ctx) },
		"ListJobs":      func() (any, error) { return rd.ListJobs(ctx) },
		"ListValues":    func() (any, error) { return rd.ListValues(ctx, "") },
		"PageValues":    func() (any, error) { return rd.PageValues(ctx, api.ValuesQuery{}) },
		"ListPauses":    func() (any, error) { return rd.ListPauses(ctx) },
		"ListOperators": func() (any, error) { return rd.ListOperators(ctx) },
		"ListTokens":    func() (any, error) { return rd.ListTokens(ctx) },
		"ExplainAccess": func() (any, error) {
			return rd.ExplainAccess(ctx, api.AccessQuery{Operator: "ada", Verb: tutti.VerbRun, Target: "db-01"})
		},
		"ShowNode":     func() (any, error) { return rd.ShowNode(ctx, "db-01") },
		"ExplainNode":  func() (any, error) { return rd.ExplainNode(ctx, "db-01") },
		"ExplainValue": func() (any, error) { return rd.ExplainValue(ctx, "shared/x") },
		"ExplainResource": func() (any, error) {
			return rd.ExplainResource(ctx, api.ExplainResource{Node: "db-01", Resource: "File[x]"})
		},
		"Graph":      func() (any, error) { return rd.Graph(ctx, "") },
		"NodeCauses": func() (any, error) { return rd.NodeCauses(ctx) },
		"Picture":    func() (any, error) { return rd.Picture(ctx, "") },
		"PushEffect": func() (any, error) {
			return rd.PushEffect(ctx, api.PushQuery{Fleet: api.FleetSource{File: "tutti.yaml", Source: []byte("fleet: test\n")}})
		},
		"ShowCode":      func() (any, error) { return rd.ShowCode(ctx, api.CodeQuery{}) },
		"ReadCode":      func() (any, error) { return rd.ReadCode(ctx, api.CodeQuery{Path: "."}) },
		"ListCode":      func() (any, error) { return rd.ListCode(ctx, api.CodeQuery{}) },
		"GetCode":       func() (any, error) { return rd.GetCode(ctx, api.CodeQuery{}) },
		"SuggestGrants": func() (any, error) { return rd.SuggestGrants(ctx, job) },
		"ListSecrets":   func() (any, error) { return rd.ListSecrets(ctx) },
		"Recipients":    func() (any, error) { return rd.Recipients(ctx, []string{"group:db"}) },
		"SecretEffect": func() (any, error) {
			return rd.SecretEffect(ctx, api.SecretEffectQuery{Key: "shared/x", For: []string{"group:db"}})
		},
		"Effect":    func() (any, error) { return rd.Effect(ctx, "shared/x", json.RawMessage("3")) },
		"RunReport": func() (any, error) { return rd.RunReport(ctx, string(run)) },
		"RunLog":    func() (any, error) { return nil, rd.RunLog(ctx, run, func(api.LogLine) error { return nil }) },
		"Query": func() (any, error) {
			return nil, rd.Query(ctx, api.Query{Of: api.QueryRuns}, func(api.QueriedNode) error { return nil })
		},
		"RunRecord":  func() (any, error) { return rd.RunRecord(ctx, run) },
		"JobChanges": func() (any, error) { return rd.JobChanges(ctx, job) },
	}
	out := map[string]error{}
	for name, call := range calls {
		_, out[name] = call()
	}
	return out
}

// TestReadersOfOneVersion is only useful with -race. TestReadersOfOneVersion checks that readers change nothing
// in a version that others read, not even a cache. In this test no lock of the server separates the readers.
func TestReadersOfOneVersion(t *testing.T) {
	f := servertest.Start(t)
	node := f.Join("db-01")
	f.Push(suiteOf("db-01"))
	job := f.Start("deploy", tutti.ModeApply)
	run := node.MustClaim().Run
	reads := []tutti.Read{{Query: tutti.Query{Kind: tutti.QueryValue, Key: "shared/x"}}, node.Read(run, tutti.Query{Kind: tutti.QueryCollect, Type: "Host"})}
	node.Gate(wire.Gate{Run: run, Reads: reads, Keys: []tutti.KeyRead{{Key: "k"}}})
	node.Finish(run)
	for _, key := range []string{"shared/x", "shared/hiera/k", "node/db-01/hiera/k"} {
		if err := f.SetValue(servertest.Operator(), key, json.RawMessage("1")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.Pause(servertest.Operator(), api.Pause{Target: "db", Reason: "lunch"}); err != nil {
		t.Fatal(err)
	}
	f.Start("deploy", tutti.ModeApply)
	events := f.Everything()
	if err := server.Hydrate(f.Blobs, events); err != nil {
		t.Fatal(err)
	}
	rd := server.Fold(events).Reader(f.Server)
	var readers sync.WaitGroup
	for range 3 {
		readers.Go(func() {
			answers := readEverywhere(t.Context(), rd, job, run)
			if methods := reflect.TypeFor[*explain.Reader]().NumMethod(); len(answers) != methods {
				t.Errorf("%d answers were read, a reader gives %d", len(answers), methods)
			}
			for name, err := range answers {
				if code := tutti.CodeOf(err); err != nil && code != tutti.CodeNotFound {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	readers.Wait()
}

func suiteOf(node string) string {
	return "fleet: readers\nsecrets: {recovery: age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p}\nenvironment: {name: production, path: ./code}\ngroups: {db: {nodes: [" + node + "]}}\nplans: {deploy: {steps: [{run: db}]}}\n"
}

// TestAReaderThatKeepsItsVersion checks a reader that keeps its version for long. Such a reader delays no
// writer, and delays other readers for at most ten seconds. After ten seconds the other readers get another version.
func TestAReaderThatKeepsItsVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		began := time.Now()
		release, kept := keepVersion(t, f)
		for range 100 {
			if err := f.SetValue(servertest.Operator(), "shared/x", json.RawMessage(time.Now().Format(`"05.000"`))); err != nil {
				t.Fatal(err)
			}
			f.Join("db-01")
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("who writes waited %s for a reader", took)
		}
		wantNew := func(after time.Duration) {
			t.Helper()
			err := f.Look(t.Context(), func(version server.State) {
				if got := int(version.Seq()); got != len(f.Everything()) {
					t.Errorf("a look sees %d of %d events", got, len(f.Everything()))
				}
				wantFold(t, f, version)
			})
			if took := time.Since(began); err != nil || took != after {
				t.Errorf("another reader was let in after %s: %v; want after %s", took, err, after)
			}
		}
		wantNew(10 * time.Second)
		wantFold(t, f, *kept)

		// Two slow readers keep two versions. The server makes no third version for other readers.
		began = time.Now()
		again, _ := keepVersion(t, f)
		f.Join("db-02")
		err := f.Look(t.Context(), func(server.State) { t.Error("two versions are kept, and there is a third") })
		wantCode(t, err, tutti.CodeUnavailable, "the server's readers did not see event")
		release()
		wantNew(30 * time.Second)
		again()
	})
}

// keepVersion keeps a version until the test calls `release`.
func keepVersion(t *testing.T, f *servertest.Fleet) (release func(), kept *server.State) {
	t.Helper()
	end, ended, got := make(chan struct{}), make(chan struct{}), make(chan server.State)
	go func() {
		defer close(ended)
		if err := f.Look(context.WithoutCancel(t.Context()), func(version server.State) {
			got <- version
			<-end
		}); err != nil {
			t.Error(err)
		}
	}()
	var version server.State
	select {
	case version = <-got:
	case <-ended:
		t.Fatal("no version")
	}
	release = sync.OnceFunc(func() {
		close(end)
		<-ended
	})
	t.Cleanup(release)
	return release, &version
}
