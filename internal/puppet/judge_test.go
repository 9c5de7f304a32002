package puppet_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/puppet"
)

// samples contains the directories of real runs of real Puppets. The module's specs make
// these directories.
const samples = "../../puppet/testdata/runs"

type verdict struct {
	Outcome tutti.Outcome
	Reason  tutti.Reason
	Stopped bool
	File    string // file of the first failure
	Line    int
	Column  int
	Says    string // part of the message
	Waits   string // the queries for which the run waits
}

var endings = map[string]verdict{
	"agent-broken":           {Outcome: tutti.Failed, Reason: tutti.BecauseMachinery, Says: "Failed to parse CA certificates"},
	"agent-stranger":         {Outcome: tutti.Failed, Reason: tutti.BecauseRefused, Says: "no certificate of a Puppet Server yet"},
	"agent-certname":         {Outcome: tutti.Failed, Reason: tutti.BecauseRefused, Says: "puppet.conf names this node"},
	"agent-disabled":         {Outcome: tutti.Skipped, Says: "Puppet is disabled on the node: new kernel, ask jo"},
	"catalog-cycle":          {Outcome: tutti.Failed, Reason: tutti.BecauseCatalog, File: "site.pp", Line: 1, Says: "Found 1 dependency cycle"},
	"catalog-invalid":        {Outcome: tutti.Failed, Reason: tutti.BecauseCatalog, File: "site.pp", Line: 2, Says: "must be fully qualified"},
	"catalog-missing-target": {Outcome: tutti.Failed, Reason: tutti.BecauseCompile, File: "site.pp", Line: 1, Says: "Could not find resource"},
	"catalog-sensitive":      {Outcome: tutti.Failed, Reason: tutti.BecauseCatalog, File: "site.pp", Line: 1, Says: "is Sensitive"},
	"changed":                {Outcome: tutti.Changed},
	"compile-class":          {Outcome: tutti.Failed, Reason: tutti.BecauseCompile, File: "site.pp", Line: 3, Column: 1, Says: "Could not find class"},
	"compile-fail":           {Outcome: tutti.Failed, Reason: tutti.BecauseCompile, File: "site.pp", Line: 2, Column: 1, Says: "no rings yet"},
	"compile-manifest":       {Outcome: tutti.Failed, Reason: tutti.BecauseCompile, Says: "has no manifest"},
	"compile-only":           {Stopped: true},
	"compile-syntax":         {Outcome: tutti.Failed, Reason: tutti.BecauseCompile, File: "site.pp", Line: 2, Column: 13, Says: "Syntax error"},
	"compile-type":           {Outcome: tutti.Failed, Reason: tutti.BecauseCompile, File: "site.pp", Line: 2, Column: 1, Says: "expects an Integer"},
	"compile-unavailable":    {Outcome: tutti.Failed, Reason: tutti.BecauseCompile, File: "site.pp", Line: 1, Column: 6, Says: "the server is away"},
	"compile-rescued":        {Outcome: tutti.Failed, Reason: tutti.BecauseCompile, File: "site.pp", Line: 2, Column: 1, Says: "no second way either"},
	"compile-parameters":     {Outcome: tutti.Failed, Reason: tutti.BecauseCompile, File: "site.pp", Line: 2, Column: 1, Says: "expects a value for parameter 'host'"},
	"compile-value":          {Outcome: tutti.Waiting, Says: `waits for value "swift/rings" (Class[main], /srv/tutti/code/production/manifests/site.pp:1)`, Waits: `value "swift/rings"`},
	"facts-exit":             {Outcome: tutti.Failed, Reason: tutti.BecauseFacts},
	"facts-missing":          {Outcome: tutti.Failed, Reason: tutti.BecauseFacts, Says: "no facts of node"},
	"facts-node":             {Outcome: tutti.Failed, Reason: tutti.BecauseFacts, Says: "returned 4"},
	"failed-deferred":        {Outcome: tutti.Failed, Reason: tutti.BecauseCatalog, Says: "there is no value"},
	"failed-resources":       {Outcome: tutti.Failed, Reason: tutti.BecauseResources, File: "site.pp", Line: 1, Says: "1 resource failed"},
	"gate-refused":           {Outcome: tutti.Failed, Reason: tutti.BecauseRefused, Says: "no grant"},
	"gate-stop":              {Stopped: true, Says: "changed while compiling"},
	"killed":                 {Outcome: tutti.Interrupted, Says: "in phase apply"},
	"locked":                 {Outcome: tutti.Failed, Reason: tutti.BecauseTimeout, Says: "held the lock"},
	"machinery":              {Outcome: tutti.Failed, Reason: tutti.BecauseMachinery, Says: "cannot load such file"},
	"noop":                   {Outcome: tutti.Unchanged},
	"prerun":                 {Outcome: tutti.Failed, Reason: tutti.BecauseRefused, Says: "prerun_command"},
	"refused-certname":       {Outcome: tutti.Failed, Reason: tutti.BecauseRefused, Says: "puppet.conf names this node"},
	"refused-code":           {Outcome: tutti.Failed, Reason: tutti.BecauseRefused, Says: "does not exist"},
	"refused-hello":          {Outcome: tutti.Failed, Reason: tutti.BecauseRefused, Says: "is not here"},
	"terminated":             {Outcome: tutti.Interrupted, Says: "SIGTERM"},
	"unchanged":              {Outcome: tutti.Unchanged},
	"waiting-blocks": {Outcome: tutti.Waiting, Says: `waits for value "swift/rings" (Class[A], /srv/tutti/code/production/manifests/site.pp:1), Sshkey <<| |>> (Class[B], `,
		Waits: `value "swift/rings", Sshkey <<| |>>`},
	"failed-blocks":      {Outcome: tutti.Failed, Reason: tutti.BecauseResources, File: "site.pp", Line: 1, Says: "3 resources failed"},
	"noop-blocks":        {Outcome: tutti.Unchanged},
	"compile-blocks":     {Outcome: tutti.Failed, Reason: tutti.BecauseCompile, File: "site.pp", Line: 5, Column: 1},
	"waiting-parameters": {Outcome: tutti.Waiting, Says: `waits for hiera "db::port" (Class[Db], `, Waits: `hiera "db::port", hiera "db::host"`},
	"waiting-required":   {Outcome: tutti.Waiting, Says: `waits for hiera "db::host" (Class[Db], `, Waits: `hiera "db::host"`},
}

// TestJudgeRealRuns judges the files of real runs, for every version of Puppet with
// samples.
func TestJudgeRealRuns(t *testing.T) {
	versions, err := filepath.Glob(filepath.Join(samples, "*"))
	if err != nil || len(versions) < 2 {
		t.Fatalf("samples of %d Puppets in %s, want at least two: %v", len(versions), samples, err)
	}
	for _, version := range versions {
		for name, want := range endings {
			t.Run(filepath.Base(version)+"/"+name, func(t *testing.T) {
				dir := filepath.Join(version, name)
				got := puppet.Judge(dir, runOf(t, dir))
				checkVerdict(t, want, got)
			})
		}
		checkAllNamed(t, version)
	}
}

func checkVerdict(t *testing.T, want verdict, got tutti.Result) {
	t.Helper()
	have := verdict{Outcome: got.Outcome, Reason: got.Reason, Stopped: got.Stopped, Says: want.Says}
	var waits []string
	for _, w := range got.Waits {
		waits = append(waits, w.Query.String())
	}
	have.Waits = strings.Join(waits, ", ")
	if want.File != "" && len(got.Failures) > 0 {
		have.File, have.Line, have.Column = filepath.Base(got.Failures[0].File), got.Failures[0].Line, got.Failures[0].Column
	}
	if !strings.Contains(got.Message, want.Says) {
		have.Says = got.Message
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if err := got.Validate(); err != nil {
		t.Errorf("the server would refuse it: %v", err)
	}
}

func checkAllNamed(t *testing.T, version string) {
	t.Helper()
	dirs, err := os.ReadDir(version)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if _, ok := endings[d.Name()]; !ok {
			t.Errorf("%s/%s: a sample that no verdict is written down for", version, d.Name())
		}
	}
}

func runOf(t *testing.T, dir string) tutti.RunID {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, "run.json"))
	if err != nil {
		t.Fatal(err)
	}
	var order struct {
		Run tutti.RunID `json:"run"`
	}
	if err := json.Unmarshal(raw, &order); err != nil {
		t.Fatal(err)
	}
	return order.Run
}

// TestNoopSaysWhatItWouldChange: the result of a noop run lists the changes, because a
// count does not show whether a change is intended.
func TestNoopSaysWhatItWouldChange(t *testing.T) {
	for _, version := range []string{"7.23.0", "8.10.0"} {
		t.Run(version, func(t *testing.T) {
			for name, want := range map[string]int{"noop": 1, "changed": 0} {
				dir := filepath.Join(samples, version, name)
				got := puppet.Judge(dir, runOf(t, dir))
				if len(got.Changes) != want || want != 0 && got.Counts.OutOfSync != want {
					t.Fatalf("%s: %+v, counts %+v, want %d", name, got.Changes, got.Counts, want)
				}
				for _, c := range got.Changes {
					if c.Resource == "" || c.Line == 0 || c.Message == "" || strings.Contains(c.Message, "noop") {
						t.Errorf("%+v, want resource, place and how", c)
					}
				}
			}
		})
	}
}

// TestJudgeNeverTakesAnotherReport replaces the report of a run by a good report of
// another run, and by a report that is cut off.
func TestJudgeNeverTakesAnotherReport(t *testing.T) {
	good := filepath.Join(samples, "8.10.0", "changed")
	report, err := os.ReadFile(filepath.Join(good, puppet.ReportFile))
	if err != nil {
		t.Fatal(err)
	}
	phases, err := os.ReadFile(filepath.Join(good, "phase.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		report []byte
		run    tutti.RunID
		reason tutti.Reason
	}{
		"another run":  {report, "00000000-0000-0000-0000-000000000001", tutti.BecauseMachinery},
		"cut report":   {report[:len(report)/2], runOf(t, good), tutti.BecauseMachinery},
		"empty report": {nil, runOf(t, good), tutti.BecauseMachinery},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range map[string][]byte{puppet.ReportFile: tc.report, "phase.jsonl": phases} {
				if err := os.WriteFile(filepath.Join(dir, file), content, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := puppet.Judge(dir, tc.run); got.Outcome != tutti.Failed || got.Reason != tc.reason {
				t.Errorf("judged %s:%s, want failed:%s", got.Outcome, got.Reason, tc.reason)
			}
		})
	}
}

// TestAResultHasRoomForSoManyWaits: the list of waits in a result is bounded. The message
// still has all waits.
func TestAResultHasRoomForSoManyWaits(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	waits := []tutti.Wait{{Query: tutti.Query{Kind: tutti.QueryValue, Key: long}}, {Query: tutti.Query{Kind: "dance", Key: "k"}}}
	for range 2 * tutti.MaxFailures {
		waits = append(waits, tutti.Wait{Query: tutti.Query{Kind: tutti.QueryValue, Key: "k"}, At: tutti.Place{File: long}})
	}
	raw, err := json.Marshal(map[string]any{"t": "2026-11-21T16:00:00Z", "phase": "compile", "waits": waits})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	lines := string(raw) + "\n" + `{"t":"2026-11-21T16:00:00Z","phase":"done","exit":1}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "phase.jsonl"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	got := puppet.Judge(dir, "00000000-0000-0000-0000-000000000001")
	if got.Outcome != tutti.Waiting || len(got.Waits) != tutti.MaxFailures || got.Waits[0].Query.Key != "k" {
		t.Errorf("judged %s, %d waits", got.Outcome, len(got.Waits))
	}
	if err := got.Validate(); err != nil {
		t.Errorf("the server would refuse it: %v", err)
	}
}

func TestJudgeALauncherThatSaidNothing(t *testing.T) {
	for _, tc := range []struct {
		reason, stderr string
		outcome        tutti.Outcome
		because        tutti.Reason
	}{
		{"the agent was killed before it started it, or it was killed itself", "", tutti.Interrupted, ""},
		{"it could not start", "ruby: cannot load such file", tutti.Failed, tutti.BecauseMachinery},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "stderr"), []byte(tc.stderr), 0o600); err != nil {
			t.Fatal(err)
		}
		got := puppet.Judge(dir, "00000000-0000-0000-0000-000000000001")
		if got.Outcome != tc.outcome || got.Reason != tc.because || got.Message == "" {
			t.Errorf("%s: judged %s:%s (%s), want %s:%s", tc.reason, got.Outcome, got.Reason, got.Message, tc.outcome, tc.because)
		}
	}
}
