package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

var update = flag.Bool("update", false, "write the golden files")

var began = time.Date(2026, 1, 2, 3, 4, 0, 0, time.UTC)

// The type `moment` is one item that a watcher gets. Its time is in seconds after the
// start.
type moment struct {
	after   float64
	caption string // caption of the tree at this moment. If `caption` is empty, the test does not check the tree
	body    tutti.Body
	live    *tutti.Live
}

func (m moment) at() time.Time { return began.Add(time.Duration(m.after * float64(time.Second))) }

const (
	run1 = tutti.RunID("00000000-0000-4000-8000-000000000001")
	run2 = tutti.RunID("00000000-0000-4000-8000-000000000002")
	run3 = tutti.RunID("00000000-0000-4000-8000-000000000003")
	run4 = tutti.RunID("00000000-0000-4000-8000-000000000004")
)

func order(run tutti.RunID, node tutti.NodeName, step tutti.StepName, attempt int) *tutti.RunWanted {
	return &tutti.RunWanted{Order: tutti.Order{Run: run, Node: node, Job: "deploy-1", Step: step, Attempt: attempt}}
}

func result(run tutti.RunID, outcome tutti.Outcome, began, ended float64) tutti.Result {
	return tutti.Result{Run: run, Outcome: outcome, StartedAt: moment{after: began}.at(), EndedAt: moment{after: ended}.at()}
}

// The function `story` returns a job in which everything happens that a view can show.
func story() []moment {
	good := result(run1, tutti.Changed, 1.5, 14)
	good.Counts = tutti.Counts{Total: 12, Changed: 3}
	stopped := result(run2, "", 1, 15)
	stopped.Stopped = true
	broken := result(run3, tutti.Failed, 16, 20)
	broken.Reason, broken.Counts = tutti.BecauseResources, tutti.Counts{Total: 12, Changed: 1, Failed: 1, Skipped: 4}
	broken.Failures = []tutti.Failure{{Resource: "Service[db]", File: "/etc/x.pp", Line: 7, Message: "no such unit"}}
	plan := tutti.Plan{Name: "deploy", Steps: []tutti.Step{
		{Name: "db", Run: &tutti.RunStep{Accept: []tutti.Accept{tutti.AcceptFailedResources}}},
		{Name: "up", After: []tutti.StepName{"db"}, Wait: &tutti.WaitStep{TCP: "db-01:5432"}},
		{Name: "web", After: []tutti.StepName{"up"}, Run: &tutti.RunStep{}},
	}}
	return []moment{
		{0, "", &tutti.JobStarted{
			Job: "deploy-1", Plan: plan, Mode: tutti.ModeApply, Code: tutti.DigestOf(nil),
			Targets: map[tutti.StepName][]tutti.NodeName{"db": {"db-01", "db-02"}, "web": {"web-01"}},
		}, nil},
		{0, "", order(run1, "db-01", "db", 1), nil},
		{0.5, "both are wanted", order(run2, "db-02", "db", 1), nil},
		{1, "", &tutti.RunClaimed{Run: run1, Node: "db-01"}, nil},
		{1, "one begins", &tutti.RunClaimed{Run: run2, Node: "db-02"}, nil},
		{2, "", nil, &tutti.Live{Run: run1, Phase: "compile"}},
		{2, "one compiles, one waits for a lock", nil, &tutti.Live{Run: run2, Phase: "lock", Message: "puppet agent"}},
		{5, "", nil, &tutti.Live{Run: run2, Phase: "compile"}},
		{6, "", &tutti.RunGated{Run: run1, Verdict: tutti.GateGo}, nil},
		{6, "", nil, &tutti.Live{Run: run1, Phase: "apply"}},
		{6, "", nil, &tutti.Live{Run: run1, Total: 12}},
		{7, "", nil, &tutti.Live{Run: run1, Resource: "Package[db]"}},
		{8, "", nil, &tutti.Live{Run: run1, Resource: "Package[db]", Done: true, Changed: true}},
		{9, "", nil, &tutti.Live{Run: run1, Resource: "Service[db]", Done: true, Failed: true, Message: "no such unit"}},
		{10, "one applies", nil, &tutti.Live{Run: run1, Resource: "File[/etc/db.conf]"}},
		{14, "", &tutti.RunFinished{Result: good}, nil},
		{14, "one is stopped at its gate", &tutti.RunGated{Run: run2, Verdict: tutti.GateStop, Reason: `value "x" has changed`}, nil},
		{15, "", &tutti.RunFinished{Result: stopped}, nil},
		{15, "and compiles again", order(run3, "db-02", "db", 2), nil},
		{16, "", &tutti.RunClaimed{Run: run3, Node: "db-02"}, nil},
		{17, "", &tutti.RunGated{Run: run3, Verdict: tutti.GateGo}, nil},
		{20, "", &tutti.RunFinished{Result: broken}, nil},
		{20, "a failure that is accepted, and a wait", &tutti.StepStarted{Job: "deploy-1", Step: "up"}, nil},
		{80, "", &tutti.StepFinished{Job: "deploy-1", Step: "up", OK: true}, nil},
		{80, "", order(run4, "web-01", "web", 1), nil},
		{81, "", &tutti.RunClaimed{Run: run4, Node: "web-01"}, nil},
		{115, "", &tutti.RunLost{Run: run4, Reason: "nothing heard of the node for 30s"}, nil},
		{115, "the end", &tutti.JobFinished{Job: "deploy-1", Verdict: tutti.VerdictFailed, Message: "failed: web"}, nil},
	}
}

// The function `tell` sends the items of the story to `p`, as a server does. After each
// item it calls `each`.
func tell(p *progress, each func(m moment, w api.Watched)) {
	for i, m := range story() {
		var w api.Watched
		if m.live != nil {
			l := *m.live
			l.At, l.Node = m.at(), "db-01"
			w.Live = &l
		}
		if m.body != nil {
			w.Event = &tutti.Event{Seq: uint64(i + 1), At: m.at(), By: "operator:ada", Body: m.body}
		}
		if p.apply(w) {
			each(m, w)
		}
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/" + name
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: -want +got\n%s", file, diff)
	}
}

func TestTheTree(t *testing.T) {
	p := newProgress()
	v := &treeView{progress: p}
	var out strings.Builder
	lines, _ := v.lines(began, false)
	fmt.Fprintf(&out, "# before its first event\n%s\n", strings.Join(lines, "\n"))
	tell(p, func(m moment, _ api.Watched) {
		if m.caption != "" {
			lines, _ := v.lines(m.at(), false)
			fmt.Fprintf(&out, "\n# %s, after %gs\n%s\n", m.caption, m.after, strings.Join(lines, "\n"))
		}
	})
	golden(t, "tree.txt", out.String())
}

func TestColoursTakeNoRoom(t *testing.T) {
	plain, coloured := palette(false), palette(true)
	for _, width := range []int{5, 20} {
		text := "deploy-1  apply ● db-01"
		want := clip(plain.bold(text[:8])+plain.dim(text[8:]), width)
		got := clip(coloured.bold(text[:8])+coloured.dim(text[8:]), width)
		for _, code := range []string{"\x1b[1m", "\x1b[2m", "\x1b[0m"} {
			got = strings.ReplaceAll(got, code, "")
		}
		if got != want || len([]rune(want)) != width-1 {
			t.Errorf("%d wide: %q, without colours %q", width, got, want)
		}
	}
}

func TestPlainLines(t *testing.T) {
	time.Local = time.UTC
	p := newProgress()
	var out, hints bytes.Buffer
	v := &plainView{progress: p, out: &out, hints: &hints}
	tell(p, func(_ moment, w api.Watched) { v.show(w) })
	v.say("the server is away")
	v.finish(nil)
	golden(t, "plain.txt", out.String())
	if hints.String() != "the server is away\n" {
		t.Errorf("hints %q", hints.String())
	}
}

func TestJSONLines(t *testing.T) {
	p := newProgress()
	var out bytes.Buffer
	v := &jsonView{progress: p, out: newEncoder(&out)}
	tell(p, func(_ moment, w api.Watched) { v.show(w) })
	v.finish(errors.New("the server is away"))
	counts := map[string]int{}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for _, line := range lines {
		var got struct {
			Type string `json:"type"`
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil || got.Type == "event" && got.Kind == "" {
			t.Errorf("line %s: %v", line, err)
		}
		counts[got.Type]++
	}
	if diff := cmp.Diff(map[string]int{"event": 19, "live": 9, "summary": 1}, counts); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	want := `{"type":"summary","job":"deploy-1","outcome":"failed","runs":2,"compiles":1,"failed":2,"wall_s":115,"critical_path_s":18,` +
		`"message":"failed: web","error":"the server is away"}`
	if diff := cmp.Diff(want, lines[len(lines)-1]); diff != "" {
		t.Errorf("last line -want +got\n%s", diff)
	}
}

// Events that the server sends again after a lost connection are shown only
// once.
func TestWhatComesAgainIsNotShownAgain(t *testing.T) {
	p := newProgress()
	shown := 0
	for range 2 {
		p.begin()
		tell(p, func(_ moment, w api.Watched) {
			if w.Event != nil {
				shown++
			}
		})
	}
	if shown != 19 {
		t.Errorf("%d events were shown, want each of 19 once", shown)
	}
}

// A server was restored from a backup and does not have the last events of a job.
// The server's new events have the sequences of the lost events. The view must show
// the new events.
func TestAServerFromABackupTellsAnotherHistory(t *testing.T) {
	p := newProgress()
	var out bytes.Buffer
	view := &plainView{progress: p, out: &out, hints: &out}
	at := began
	event := func(seq uint64, body tutti.Body) {
		at = at.Add(time.Second)
		e := tutti.Event{Seq: seq, At: at, Body: body}
		if w := (api.Watched{Event: &e}); p.apply(w) {
			view.show(w)
		}
	}
	started := &tutti.JobStarted{Job: "deploy-1", Plan: tutti.Plan{Name: "deploy", Steps: []tutti.Step{{Name: "web", Run: &tutti.RunStep{}}}}}
	event(4, started)
	event(5, order(run1, "web-01", "web", 1))
	event(6, &tutti.RunClaimed{Run: run1})
	event(7, order(run2, "web-02", "web", 1))
	event(8, &tutti.RunClaimed{Run: run2})

	p.begin()
	at = began
	event(4, started)
	event(5, order(run1, "web-01", "web", 1))
	event(6, &tutti.RunClaimed{Run: run1})
	at = at.Add(time.Minute)
	event(7, order(run3, "web-02", "web", 1))
	event(8, &tutti.RunClaimed{Run: run3})

	if got := strings.Count(out.String(), "web-01 begins"); got != 1 {
		t.Errorf("web-01 began %d times, want once:\n%s", got, out.String())
	}
	if got := strings.Count(out.String(), "web-02 begins"); got != 2 {
		t.Errorf("web-02 began %d times, want once in each history:\n%s", got, out.String())
	}
	if p.state.Runs[run2] != nil || p.state.Runs[run3] == nil {
		t.Errorf("runs %v, want what the restored server knows of", p.state.Runs)
	}
}
