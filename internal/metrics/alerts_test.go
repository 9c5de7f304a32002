package metrics_test

import (
	"encoding/json"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/promtest"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const rulesFile = "../../deploy/prometheus/tutti.rules.yml"

const alertFleet = "fleet: shop\nenvironment: {name: production, path: ./code}\ngroups: {web: {nodes: [web-01]}, db: {nodes: [db-01]}}\nplans: {deploy: {steps: [{run: web}]}}\n"

// TestTheFleetsAlerts makes each thing happen on a real server, and shows the alert silent before and firing after, by
// what the server printed.
func TestTheFleetsAlerts(t *testing.T) {
	var cases []promtest.Case
	add := func(alert string, after time.Duration, happens func(m *measured)) {
		synctest.Test(t, func(t *testing.T) {
			m := start(t)
			m.Join("web-01")
			m.Join("db-01")
			m.Push(alertFleet)
			m.apply("web-01", nil)
			m.quiet = m.scrape()
			happens(m)
			cases = append(cases, promtest.Case{Alert: alert, Quiet: m.quiet, Loud: m.scrape(), After: after})
		})
	}
	add("TuttiDown", 3*time.Minute, func(m *measured) { _ = m.Stop() }) // the process lives, and the server does not serve
	add("TuttiNodesFailed", 16*time.Minute, func(m *measured) {
		m.apply("web-01", func(r *tutti.Result) { r.Outcome, r.Reason = tutti.Failed, tutti.BecauseResources })
	})
	add("TuttiStaleForLong", time.Minute, func(m *measured) {
		m.set("shared/x", "2")
		m.scrape()
		m.stay(3 * time.Hour)
		m.quiet = m.scrape()
		m.stay(time.Hour)
	})
	add("TuttiQueueStuck", time.Minute, func(m *measured) {
		m.Start("deploy", tutti.ModeApply)
		m.stay(14 * time.Minute)
		m.quiet = m.scrape()
		m.stay(2 * time.Minute)
	})
	add("TuttiNodesAway", 16*time.Minute, func(*measured) { time.Sleep(time.Minute) })
	add("TuttiDiverging", time.Minute, func(m *measured) {
		m.set("shared/x", "3")
		job, err := m.StartJob(servertest.Operator(), api.StartJob{Mode: tutti.ModeApply, Converge: &tutti.ConvergeStep{Target: "web"}})
		if err != nil {
			m.t.Fatal(err)
		}
		for i := 0; m.Job(job).Verdict == ""; i++ {
			m.pass("web-01", func(*tutti.Result) { m.set("shared/x", strconv.Itoa(100+i)) }) // after the gate
			synctest.Wait()
		}
		if got := m.Job(job).Verdict; got != tutti.VerdictDiverging {
			m.t.Fatalf("the job ended %s: %s", got, m.Job(job).Message)
		}
	})
	add("TuttiDenied", time.Minute, func(m *measured) {
		if err := m.Node("web-01").Publish(servertest.NewRunID(), "other/x", "1"); err == nil {
			m.t.Fatal("nothing was refused")
		}
	})
	add("TuttiLogSlow", 12*time.Minute, func(m *measured) {
		m.log.needs = 400 * time.Millisecond
		m.set("shared/y", "1")
	})
	promtest.Alerts(t, rulesFile, cases...)
}

// The method `apply` runs a node in a job of the plan. The node reads a value.
func (m *measured) apply(node tutti.NodeName, change func(*tutti.Result)) {
	m.t.Helper()
	m.set("shared/x", "1")
	m.Start("deploy", tutti.ModeApply)
	m.pass(node, change)
}

// The method `pass` runs the node once, if there is a run for it.
func (m *measured) pass(name tutti.NodeName, change func(*tutti.Result)) {
	m.t.Helper()
	node := m.Node(name)
	order := node.Claim()
	if order == nil {
		time.Sleep(time.Second)
		return
	}
	read := node.Read(order.Run, tutti.Query{Kind: tutti.QueryValue, Key: "shared/x"})
	gated := node.Gate(wire.Gate{Run: order.Run, Reads: []tutti.Read{read}})
	for ; gated.Verdict == tutti.GateHold; gated = node.Gate(wire.Gate{Run: order.Run, Reads: []tutti.Read{read}}) {
		time.Sleep(time.Second)
	}
	result := servertest.Result(order.Run, tutti.Changed)
	result.Stopped = gated.Verdict == tutti.GateStop
	if change != nil {
		change(&result)
	}
	if err := node.Call(wire.OpResult, result, nil); err != nil {
		m.t.Fatal(err)
	}
}

func (m *measured) set(key, value string) {
	m.t.Helper()
	if err := m.SetValue(servertest.Operator(), key, json.RawMessage(value)); err != nil {
		m.t.Fatal(err)
	}
}

// The method `stay` lets time pass while the nodes are connected.
func (m *measured) stay(d time.Duration) {
	m.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(10 * time.Second) {
		for _, n := range []tutti.NodeName{"web-01", "db-01"} {
			m.beat(n)
		}
	}
}

func (m *measured) beat(name tutti.NodeName) {
	m.t.Helper()
	if err := m.Node(name).Call(wire.OpBeat, wire.Beat{At: time.Now()}, nil); err != nil {
		m.t.Fatal(err)
	}
}
