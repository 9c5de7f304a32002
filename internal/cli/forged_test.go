package cli

import (
	"bytes"
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
)

// The function `forge` sets every text in a value, at any depth, to a text with a second line. Values of other
// string types, such as names of nodes, become `x`. These types are checked when they are read, so they never
// contain a second line.
func forge(v reflect.Value, depth int) {
	const text = "x\nFORGED\tby a node"
	if depth > 8 || !v.CanSet() {
		return
	}
	kind := v.Kind()
	if kind == reflect.String {
		v.SetString("x")
		if v.Type() == reflect.TypeFor[string]() {
			v.SetString(text)
		}
	}
	if kind == reflect.Bool {
		v.SetBool(true)
	}
	if kind == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		forge(v.Elem(), depth+1)
	}
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1, 0)))
	} else if kind == reflect.Struct {
		for i := range v.NumField() {
			forge(v.Field(i), depth+1)
		}
	}
	if v.Type() == reflect.TypeFor[json.RawMessage]() {
		v.SetBytes([]byte(`"x\nFORGED"`))
	} else if kind == reflect.Slice {
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		forge(v.Index(0), depth+1)
	}
	if kind == reflect.Map {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		forge(key, depth+1)
		forge(value, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	}
}

func forged[T any]() (out T) {
	forge(reflect.ValueOf(&out).Elem(), 0)
	return out
}

// TestNoTextForgesALine checks that a text from a node always stays in the line in which the command prints it.
func TestNoTextForgesALine(t *testing.T) {
	now := time.Unix(100, 0)
	result, node := forged[tutti.Result](), forged[api.NodeDetail]()
	run := &engine.Run{Order: tutti.Order{Run: "r", Node: "web-01"}, Result: &result, ClaimedAt: now, WantedAt: now}
	job := func(r *engine.Run) *engine.Job {
		return &engine.Job{ID: "deploy-1", Steps: []*engine.Step{{Step: tutti.Step{Name: "web", Run: &tutti.RunStep{Target: "web"}}, Nodes: []*engine.StepNode{{Node: "web-01", Runs: []*engine.Run{r}}}}}}
	}
	failed, lost, live := *run, *run, forged[tutti.Live]()
	bad := result
	bad.Outcome, bad.Reason, bad.Report, bad.Stopped = tutti.Failed, tutti.BecauseCompile, "", false
	failed.Result, lost.Lost = &bad, "x\nFORGED"
	live.Failed = true
	record := forged[tutti.Record]()
	for what, print := range map[string]func(io.Writer){
		"a node":           func(w io.Writer) { printNode(w, node.NodeView, now); printStanding(w, node, now) },
		"why a node is so": func(w io.Writer) { printNodeExplanation(w, forged[api.NodeExplanation](), now) },
		"a value":          func(w io.Writer) { printValueExplanation(w, forged[api.ValueExplanation](), now) },
		"a resource":       func(w io.Writer) { printResourceExplanation(w, forged[api.ResourceExplanation](), now) },
		"a run": func(w io.Writer) {
			printRun(w, runJSON{RunReport: forged[api.RunReport](), Log: forged[[]api.LogLine]()}, true, now)
		},
		"a run that failed": func(w io.Writer) {
			r := forged[api.RunReport]()
			r.Report, r.Result = nil, &bad
			printRun(w, runJSON{RunReport: r}, false, now)
		},
		"changes":       func(w io.Writer) { printChanges(w, forged[api.JobChanges]()) },
		"a job":         func(w io.Writer) { printJob(w, job(run), now) },
		"a job, failed": func(w io.Writer) { printJob(w, job(&failed), now); printUnreported(w, job(&failed)) },
		"a job, lost":   func(w io.Writer) { printJob(w, job(&lost), now) },
		"a record":      func(w io.Writer) { printRecord(w, run, record) },
		"what goes on":  func(w io.Writer) { (&plainView{progress: newProgress(), out: w}).show(api.Watched{Live: &live}) },
		"a local run":   func(w io.Writer) { printLocalLive(w, live) },
		"code":          func(w io.Writer) { printCode(w, forged[api.CodeShown](), now) },
	} {
		var out bytes.Buffer
		print(&out)
		if !strings.Contains(out.String(), "FORGED") {
			t.Errorf("%s: prints nothing of it:\n%s", what, out.String())
		}
		for line := range strings.Lines(out.String()) {
			if strings.HasPrefix(strings.Trim(line, " │"), "FORGED") {
				t.Errorf("%s: forged a line:\n%s", what, out.String())
				break
			}
		}
	}
}
