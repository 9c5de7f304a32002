package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/servertest"
)

// These numbers describe the fleet that the readers read. Each node has a role. A node asks for
// 1,950 absent hiera keys, ten present hiera keys, and ten values; all nodes of a role ask for the
// same keys and values. The nodes of the first role export resources, and the nodes of all other
// roles collect them. Each node publishes one value.
const (
	readRoles  = 20
	readAbsent = 1950
	readKeys   = 10
)

// pastOf is a log with its blobs. According to this log, each node of a fleet has joined and run
// once.
type pastOf struct {
	events []tutti.Event
	blobs  [][]byte
	at     time.Time
}

func newPastOf(nodes int) (*pastOf, error) {
	p := &pastOf{at: time.Now().Add(-time.Hour).UTC()}
	manifest, err := json.Marshal(servertest.Sign(tutti.CodeManifest{Version: 1, Environment: "production"}))
	if err != nil {
		return nil, err
	}
	code := tutti.DigestOf([]byte("code"))
	plan := tutti.Plan{Name: "all", Steps: []tutti.Step{{Name: "run", Timeout: time.Hour, Run: &tutti.RunStep{Target: "all"}}}}
	p.add("operator:bench", &tutti.FleetSet{Digest: code, Fleet: tutti.Fleet{
		Name: "read", Environment: tutti.Environment{Name: "production", Path: "./code"}, Plans: []tutti.Plan{plan},
	}})
	p.add("operator:bench", &tutti.CodePushed{Environment: "production", Code: code, Signed: p.blob(manifest)})
	for role := range readRoles {
		for i := range readKeys {
			p.add("operator:bench", &tutti.ValueSet{Key: fmt.Sprintf("shared/hiera/%s", roleKey(role, i)), Value: json.RawMessage(`"x"`)})
		}
	}
	var names []tutti.NodeName
	for i := range nodes {
		names = append(names, nodeName(i))
		p.add("node:"+string(nodeName(i)), &tutti.NodeEnrolled{
			Node: nodeName(i), Key: servertest.Key(string(nodeName(i))), Token: tutti.TokenID(fmt.Sprintf("token-%d", i)), Groups: []tutti.GroupName{"all"},
		})
	}
	p.add("operator:bench", &tutti.JobStarted{
		Job: "all-1", Plan: plan, Mode: tutti.ModeApply, Env: "production", Code: code, Targets: map[tutti.StepName][]tutti.NodeName{"run": names},
	})
	exported := data.NewState()
	for i := 0; i < nodes; i += readRoles {
		exported.Apply(tutti.Event{Body: &tutti.ExportsSet{Node: nodeName(i), Exports: readExports(i), Count: 1}})
	}
	roles := make([]tutti.RunCompiled, readRoles)
	for role := range roles {
		if roles[role], err = p.compiled(role, exported); err != nil {
			return nil, err
		}
	}
	for i := range nodes {
		if err := p.run(i, code, roles[i%readRoles]); err != nil {
			return nil, err
		}
	}
	p.add("server", &tutti.JobFinished{Job: "all-1", Verdict: tutti.VerdictSucceeded})
	return p, nil
}

// readExports returns the exports of a node in the first role.
func readExports(i int) []tutti.Export {
	node := nodeName(i)
	return []tutti.Export{{Type: "Host", Title: string(node), Node: node, Parameters: map[string]json.RawMessage{"ip": json.RawMessage(`"10.0.0.1"`)}}}
}

func roleKey(role, i int) string { return fmt.Sprintf("role%02d::key%02d", role, i) }

func (p *pastOf) add(by string, body tutti.Body) {
	p.events = append(p.events, tutti.Event{Seq: uint64(len(p.events)) + 1, At: p.at, By: by, Body: body})
}

func (p *pastOf) blob(content []byte) tutti.Digest {
	p.blobs = append(p.blobs, content)
	return tutti.DigestOf(content)
}

// The method `compiled` returns the data that each node of a role sends at its gate. The caller
// sets the id of the run.
func (p *pastOf) compiled(role int, exported *data.State) (tutti.RunCompiled, error) {
	asked := &tutti.Questions{}
	for i := range readAbsent {
		asked.Keys = append(asked.Keys, fmt.Sprintf("role%02d::module%02d::absent%02d", role, i/readKeys, i%readKeys))
	}
	keys, err := json.Marshal(asked.Keys)
	if err != nil {
		return tutti.RunCompiled{}, err
	}
	asked.Absent = p.blob(keys)
	if role > 0 {
		q := tutti.Query{Kind: tutti.QueryCollect, Type: "Host"}
		asked.Reads = append(asked.Reads, tutti.Read{Query: q, Found: true, Digest: exported.Answer(q, data.Asker{}).Digest})
	}
	for i := range readKeys {
		asked.Reads = append(asked.Reads,
			tutti.Read{Query: tutti.Query{Kind: tutti.QueryHiera, Key: roleKey(role, i)}, Found: true, Digest: tutti.DigestOf([]byte(`"x"`))},
			tutti.Read{Query: tutti.Query{Kind: tutti.QueryValue, Key: fmt.Sprintf("shared/role%02d/%d", role, i)}})
	}
	raw, err := json.Marshal(asked)
	return tutti.RunCompiled{Asked: p.blob(raw), Absent: asked.Absent, Reads: asked}, err
}

// The method `run` adds the events of one node's run.
func (p *pastOf) run(i int, code tutti.Digest, of tutti.RunCompiled) error {
	node := nodeName(i)
	by, run := "node:"+string(node), tutti.RunID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
	mine := "node/" + string(node) + "/done"
	of.Run, of.CatalogReport = run, tutti.CatalogReport{Catalog: code, Puppet: "8.10.0", Values: []string{mine}}
	result := servertest.Result(run, tutti.Changed)
	p.add("server", &tutti.RunWanted{Order: tutti.Order{
		Run: run, Node: node, Job: "all-1", Step: "run", Mode: tutti.ModeApply, Environment: "production", Code: code, Timeout: time.Hour, Attempt: 1,
	}})
	p.add(by, &tutti.RunClaimed{Run: run, Node: node})
	p.add(by, &of)
	p.add(by, &tutti.RunGated{Run: run, Verdict: tutti.GateGo, Catalog: code})
	if i%readRoles == 0 {
		exports := readExports(i)
		set, err := json.Marshal(exports)
		if err != nil {
			return err
		}
		p.add(by, &tutti.ExportsSet{Node: node, Run: run, Job: "all-1", Set: p.blob(set), Count: len(exports), Exports: exports})
	}
	p.add(by, &tutti.ValueSet{Key: mine, Value: json.RawMessage(`"done"`), Owner: node, Run: run, Job: "all-1"})
	p.add(by, &tutti.RunFinished{Result: result})
	return nil
}

// The method `store` writes the past into an empty log.
func (p *pastOf) store(ctx context.Context, log tutti.Log, blobs tutti.Blobs) error {
	for _, content := range p.blobs {
		if _, err := blobs.Put(ctx, content); err != nil {
			return err
		}
	}
	const most = 5000 // events in one append
	for part := range slices.Chunk(p.events, most) {
		if _, err := log.Append(ctx, part[0].Seq-1, part); err != nil {
			return fmt.Errorf("append %d events of a past: %w", len(part), err)
		}
	}
	return nil
}
