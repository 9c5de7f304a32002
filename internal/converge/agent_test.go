package converge_test

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
)

// answers are the answers that a compile gets. The map `values` contains each value under
// its key, and each hiera value under hiera:KEY. A key that is absent has no entry. The map
// `exports` lists the titles of exports for each type.
type answers struct {
	values  map[string]string
	exports map[string][]string
	fact    string // the node's fact
}

// catalog is the result of a compile.
type catalog struct {
	exports map[string][]string // titles by type
	values  map[string]string   // the values that the run publishes when it applies
	fails   tutti.Reason        // when applied
	waits   string              // the missing key for which the compile waits; empty: there is a catalog
	extra   string              // other content of the catalog
}

// The type `manifest` is a node's code. It lists the questions of the node. The function `compile` makes the
// catalog from the answers.
type manifest struct {
	values  []string
	hiera   []string
	types   []string
	compile func(answers) catalog
	makes   func(fact string) string // returns the node's fact after a run has applied; nil: a run does not change the fact
}

// process is the data that a node has about its own run.
type process struct {
	got       answers
	asked     *tutti.Questions
	catalog   catalog
	published int // values
}

// The method `actions` returns what the nodes can do now, sorted by the nodes' names. In each action, a node
// sends one message to the server, or looks at the server's answers.
func (s *sim) actions() []func() {
	var out []func()
	for _, n := range s.names() {
		r := s.engine.Runs[s.engine.Active[n]]
		if r == nil && s.tells && !s.mute && !s.gone[n] {
			if body := s.engine.Tell(n, s.factsOf(n), s.now); body != nil && s.now.Sub(s.engine.Last(n).Claimed.EndedAt) >= s.delay {
				out = append(out, func() { s.append(body) })
			}
		}
		if r == nil || s.gone[n] {
			continue
		}
		p := s.memory[r.Run]
		switch {
		case r.ClaimedAt.IsZero():
			out = append(out, func() { s.claim(r.Run, n) })
		case p == nil && s.disabled:
			out = append(out, func() { s.finish(tutti.Result{Run: r.Run, Outcome: tutti.Skipped, Message: "Puppet is disabled"}) })
		case p == nil:
			out = append(out, func() { s.compile(r.Run) })
		case p.catalog.waits != "":
			out = append(out, func() { s.wait(r.Run, p) })
		case r.Compiled == nil:
			out = append(out, func() { s.gate(r.Run, p) })
		case r.Gate == tutti.GateStop:
			out = append(out, func() { s.finish(tutti.Result{Run: r.Run, Stopped: true, Message: r.GateWhy}) })
		case r.Gate == tutti.GateGo && p.catalog.fails == "" && p.published < len(p.catalog.values):
			which := p.published
			out = append(out, func() { s.publish(r.Run, p, which) })
		case r.Gate == tutti.GateGo && p.catalog.fails != "":
			out = append(out, func() {
				s.finish(tutti.Result{Run: r.Run, Outcome: tutti.Failed, Reason: p.catalog.fails, Message: "it broke", Counts: s.counts(r)})
			})
		case r.Gate == tutti.GateGo:
			out = append(out, func() {
				if m := s.manifests[r.Code][n]; m.makes != nil {
					s.facts[n] = m.makes(s.facts[n])
				}
				s.finish(tutti.Result{Run: r.Run, Outcome: tutti.Changed, Counts: s.counts(r)})
			})
		}
	}
	return out
}

// The method `counts` returns the counts of a run that found s.changes resources out of sync. A noop run does not
// change these resources.
func (s *sim) counts(r *engine.Run) tutti.Counts {
	if r.Mode != tutti.ModeApply {
		return tutti.Counts{OutOfSync: s.changes}
	}
	return tutti.Counts{OutOfSync: s.changes, Changed: s.changes}
}

// The method `compile` asks the node's questions and stores the answers.
func (s *sim) compile(id tutti.RunID) {
	r := s.engine.Runs[id]
	if r == nil || s.memory[id] != nil {
		return
	}
	m := s.manifests[r.Code][r.Node]
	p := s.asks(m, data.Asker{Node: r.Node, Job: r.Job, Overlay: true})
	p.catalog = m.compile(p.got)
	s.memory[r.Run] = p
}

// The method `asks` asks the questions of a manifest. The result contains the questions and the answers that the
// node gets now.
func (s *sim) asks(m *manifest, asker data.Asker) *process {
	p := &process{got: answers{values: map[string]string{}, exports: map[string][]string{}}, asked: &tutti.Questions{}}
	ask := func(q tutti.Query) data.Answer {
		a := s.data.Answer(q, asker)
		if a.Found || q.Kind != tutti.QueryHiera {
			p.asked.Reads = append(p.asked.Reads, tutti.Read{Query: q, Found: a.Found, Digest: a.Digest})
		} else {
			p.asked.Keys = append(p.asked.Keys, q.Key)
		}
		return a
	}
	note := func(key string, a data.Answer) {
		if a.Found {
			var v string
			_ = json.Unmarshal(a.Value, &v)
			p.got.values[key] = v
		}
	}
	for _, key := range m.values {
		note(key, ask(tutti.Query{Kind: tutti.QueryValue, Key: key}))
	}
	for _, key := range m.hiera {
		note("hiera:"+key, ask(tutti.Query{Kind: tutti.QueryHiera, Key: key}))
	}
	for _, typ := range m.types {
		var titles []string
		for _, e := range ask(tutti.Query{Kind: tutti.QueryCollect, Type: typ}).Exports {
			titles = append(titles, e.Title)
		}
		slices.Sort(titles)
		p.got.exports[typ] = titles
	}
	slices.Sort(p.asked.Keys)
	p.got.fact = s.facts[asker.Node]
	return p
}

// The following methods do the same as the handlers of the server. They ignore messages that the handlers would
// refuse.

func (s *sim) claim(id tutti.RunID, n tutti.NodeName) {
	if r := s.engine.Runs[id]; r != nil && s.engine.Active[n] == id && r.ClaimedAt.IsZero() {
		s.append(&tutti.RunClaimed{Run: id, Node: n})
	}
}

func (s *sim) gate(id tutti.RunID, p *process) {
	r := s.engine.Runs[id]
	if r == nil || r.Ended() || s.engine.Active[r.Node] != id || r.Gate != "" || r.Held() {
		return
	}
	var exports []tutti.Export
	for _, typ := range sortedKeys(p.catalog.exports) {
		for _, title := range p.catalog.exports[typ] {
			exports = append(exports, tutti.Export{Type: typ, Title: title})
		}
	}
	if s.behind != nil && s.behind(r.Node) {
		s.append(&tutti.RunAsked{Run: id, Reads: p.asked, Served: &tutti.Served{Lags: []tutti.Lag{{Node: "a", Run: "of-a"}}}})
	}
	s.exports(r, exports, true)
	same := tutti.DigestOf([]byte("same"))
	applied := p.catalog // a node does not apply its exports, so the digest of the catalog does not cover them
	applied.exports = nil
	body := &tutti.RunCompiled{Run: id, Reads: p.asked, Set: setOf(exports), CatalogReport: tutti.CatalogReport{
		Catalog: tutti.DigestOf(fmt.Append(nil, applied)), Sources: same, Lib: same, Values: sortedKeys(p.catalog.values), Puppet: s.puppet,
	}}
	if s.tells {
		body.Facts = tutti.DigestOf([]byte(p.got.fact))
	}
	if s.compiled != nil {
		s.compiled(&body.CatalogReport)
	}
	s.append(body)
}

// setOf returns the digest of a run's exports. The digest is empty if the run has no
// exports.
func setOf(exports []tutti.Export) tutti.Digest {
	if len(exports) == 0 {
		return ""
	}
	return tutti.DigestOf(fmt.Append(nil, exports))
}

func (s *sim) wait(id tutti.RunID, p *process) {
	r := s.engine.Runs[id]
	if r == nil || r.Result != nil {
		return
	}
	s.append(&tutti.RunAsked{Run: id, Reads: p.asked})
	s.append(&tutti.RunFinished{Result: tutti.Result{
		Run: id, Outcome: tutti.Waiting, Message: "no value " + p.catalog.waits,
		Waits: []tutti.Wait{{Query: tutti.Query{Kind: tutti.QueryValue, Key: p.catalog.waits}}},
	}})
}

func (s *sim) publish(id tutti.RunID, p *process, which int) {
	p.published = max(p.published, which+1)
	r := s.engine.Runs[id]
	if r == nil || s.engine.Last(r.Node).Claimed != r || r.Result != nil || !r.Passed() || r.Mode != tutti.ModeApply {
		return
	}
	key := sortedKeys(p.catalog.values)[which]
	raw, _ := json.Marshal(p.catalog.values[key])
	if v, ok := s.data.Value(key); !ok || string(v.Value) != string(raw) {
		s.append(&tutti.ValueSet{Key: key, Value: raw, Owner: r.Node, Run: r.Run, Job: r.Job})
	}
}

func (s *sim) finish(result tutti.Result) {
	r := s.engine.Runs[result.Run]
	if r == nil || r.Result != nil || r.ClaimedAt.IsZero() {
		return
	}
	if result.Outcome.Good() && r.Passed() && r.Mode == tutti.ModeApply && s.engine.Last(r.Node).Claimed == r {
		for _, key := range s.data.OwnedBy(r.Node) {
			if !slices.Contains(r.Values, key) {
				s.append(&tutti.ValueUnset{Key: key, Owner: r.Node, Run: r.Run, Job: r.Job})
			}
		}
	}
	result.StartedAt, result.EndedAt, result.Clock = r.ClaimedAt, s.now, s.clock
	if s.owes != nil && result.Outcome.Good() && !result.Stopped {
		s.owes(&result)
	}
	s.append(&tutti.RunFinished{Result: result})
	if s.afterEnd != nil {
		s.afterEnd(r.Node)
	}
}
