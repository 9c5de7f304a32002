package data_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
)

// The type `model` implements package data in the simplest way. A model has everything in one list and searches the
// whole list.
type model struct {
	values  map[string]modelValue
	boxes   map[tutti.NodeName]tutti.Digest
	exports map[tutti.NodeName][]tutti.Export
	overlay map[tutti.JobID]map[tutti.NodeName][]tutti.Export
}

// modelValue is a value or a secret. For a secret, the field `value` is the text that each node with the right key
// gets.
type modelValue struct {
	owner  tutti.NodeName
	value  string
	secret string // id of the secret; empty for a value
	pieces map[tutti.NodeName]tutti.Piece
	before map[tutti.NodeName]bool // nodes whose previous machine had the secret
	set    []setting               // the events that made the value
}

// The type `setting` describes one event that set a value: its actor and its number of bytes.
type setting struct {
	by    string
	bytes int
}

// setBy returns how many events and bytes an actor has set.
func (m *model) setBy(by string) (out data.Volume) {
	for _, v := range m.values {
		for _, e := range v.set {
			if e.by == by {
				out = data.Volume{Events: out.Events + 1, Bytes: out.Bytes + e.bytes}
			}
		}
	}
	return out
}

func newModel() *model {
	return &model{
		map[string]modelValue{}, map[tutti.NodeName]tutti.Digest{}, map[tutti.NodeName][]tutti.Export{},
		map[tutti.JobID]map[tutti.NodeName][]tutti.Export{},
	}
}

// The method `value` returns what a node gets for a path, and the content for the answer's digest. Both results are
// empty if the node gets nothing.
func (m *model) value(path string, node tutti.NodeName) (text, content string) {
	v := m.values[path]
	if v.secret == "" {
		return v.value, v.value
	}
	p, has := v.pieces[node]
	if !has || p.Box != m.boxes[node] {
		return "", ""
	}
	return string(tutti.Secret{Key: path, ID: v.secret}.Value(p.Sealed)), "secret " + v.secret
}

func (m *model) apply(by string, body tutti.Body) {
	switch b := body.(type) {
	case *tutti.ValueSet:
		m.values[b.Key] = modelValue{owner: b.Owner, value: string(b.Value), set: []setting{{by, len(b.Key) + len(b.Value)}}}
	case *tutti.SecretSealed:
		v := m.values[b.Key]
		pieces, before := map[tutti.NodeName]tutti.Piece{}, map[tutti.NodeName]bool{}
		if v.secret == b.Secret.ID {
			maps.Copy(pieces, v.pieces)
			maps.Copy(before, v.before)
		} else {
			v = modelValue{owner: b.Owner, secret: b.Secret.ID}
		}
		for _, p := range b.Pieces {
			if had := pieces[p.Node].Box; had != "" && had != p.Box && by != "node:"+string(p.Node) {
				before[p.Node] = true
			}
			pieces[p.Node] = p
		}
		v.pieces, v.before = pieces, before
		v.set = append(slices.Clone(v.set), setting{by, data.VolumeOfSecret(b.Secret).Bytes})
		m.values[b.Key] = v
	case *tutti.NodeEnrolled:
		m.boxes[b.Node] = tutti.BoxDigest(b.BoxKey)
	case *tutti.NodeBoxed:
		if m.boxes[b.Node] != "" {
			m.boxes[b.Node] = tutti.BoxDigest(b.BoxKey)
		}
	case *tutti.ValueUnset:
		delete(m.values, b.Key)
	case *tutti.ExportsSet:
		if !b.Overlay {
			m.exports[b.Node] = b.Exports
			delete(m.overlay[b.Job], b.Node)
		} else if m.overlay[b.Job] != nil {
			m.overlay[b.Job][b.Node] = b.Exports
		}
	case *tutti.NodeRemoved:
		maps.DeleteFunc(m.values, func(_ string, v modelValue) bool { return v.owner == b.Node })
		delete(m.boxes, b.Node)
		delete(m.exports, b.Node)
		for _, o := range m.overlay {
			delete(o, b.Node)
		}
	case *tutti.JobStarted:
		m.overlay[b.Job] = map[tutti.NodeName][]tutti.Export{}
	case *tutti.JobFinished:
		delete(m.overlay, b.Job)
	}
}

// The method `replaced` returns the nodes whose previous machine had a piece of the secret.
func (m *model) replaced(path string) []tutti.NodeName {
	var out []tutti.NodeName
	for node, p := range m.values[path].pieces {
		if box := m.boxes[node]; m.values[path].before[node] || box != "" && box != p.Box {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return out
}

func (m *model) hiera(node tutti.NodeName, key string) (text, content string) {
	for _, path := range []string{"node/" + string(node) + "/hiera/" + key, "shared/hiera/" + key} {
		if _, there := m.values[path]; there {
			return m.value(path, node)
		}
	}
	return "", ""
}

func (m *model) collect(name string, asker data.Asker) []string {
	sets := maps.Clone(m.exports)
	if asker.Overlay {
		maps.Copy(sets, m.overlay[asker.Job])
	}
	found := []string{}
	for node, set := range sets {
		for _, e := range set {
			if node != asker.Node && e.Type == name {
				found = append(found, fmt.Sprintf("%s %s %s", e.Title, node, e.Parameters["p"]))
			}
		}
	}
	slices.Sort(found)
	return found
}

var (
	someNodes = []tutti.NodeName{"web", "web.example.net", "db"}
	someJobs  = []tutti.JobID{"j1", "j2"}
	someKeys  = []string{"shared/hiera/k", "shared/hiera/l", "node/web/hiera/k", "node/web.example.net/hiera/k", "shared/x", "node/db/x"}
	someTypes = []string{"Web", "Db"}
	someBoxes = []string{"1", "2"}
	someIDs   = []string{"aaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbb"}
)

func anyBody(t *rapid.T) tutti.Body {
	node := rapid.SampledFrom(someNodes).Draw(t, "node")
	job := rapid.SampledFrom(someJobs).Draw(t, "job")
	key := rapid.SampledFrom(someKeys).Draw(t, "key")
	switch rapid.IntRange(0, 13).Draw(t, "kind") {
	case 10, 11:
		secret := &tutti.SecretSealed{Secret: tutti.Secret{Key: key, ID: rapid.SampledFrom(someIDs).Draw(t, "id"), For: []string{"node:web"}}}
		for _, node := range someNodes {
			if rapid.Bool().Draw(t, "sealed to it") {
				box := tutti.BoxDigest(rapid.SampledFrom(someBoxes).Draw(t, "to"))
				secret.Pieces = append(secret.Pieces, tutti.Piece{Node: node, Box: box, Sealed: []byte(string(box[8:12]) + string(node))})
			}
		}
		return secret
	case 13:
		return &tutti.NodeBoxed{Node: node, BoxKey: rapid.SampledFrom(someBoxes).Draw(t, "box")}
	case 12:
		return &tutti.NodeEnrolled{Node: node, BoxKey: rapid.SampledFrom(someBoxes).Draw(t, "box")}
	case 0, 1:
		owner := rapid.SampledFrom([]tutti.NodeName{"", node}).Draw(t, "owner")
		return &tutti.ValueSet{Key: key, Owner: owner, Value: json.RawMessage(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "value"))}
	case 2:
		return &tutti.ValueUnset{Key: key}
	case 3:
		return &tutti.NodeRemoved{Node: node}
	case 4:
		return &tutti.JobStarted{Job: job}
	case 5:
		return &tutti.JobFinished{Job: job}
	}
	var es []tutti.Export
	for _, name := range someTypes {
		for _, title := range []string{"1", "2"} {
			if rapid.Bool().Draw(t, "exported") {
				p := json.RawMessage(rapid.SampledFrom([]string{"1", "2"}).Draw(t, "p"))
				es = append(es, tutti.Export{Type: name, Title: title, Parameters: map[string]json.RawMessage{"p": p}})
			}
		}
	}
	return &tutti.ExportsSet{Node: node, Job: job, Overlay: rapid.Bool().Draw(t, "overlay"), Exports: es, Count: len(es)}
}

// TestStateIsTheModel applies random logs. After each event, the test asks all questions.
// Equal answers must have equal digests, over the whole log.
func TestStateIsTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := data.NewState()
		m := newModel()
		contents := map[tutti.Digest]string{}
		digests := map[string]tutti.Digest{}
		check := func(question, content string, digest tutti.Digest) {
			if had, ok := contents[digest]; ok && had != content {
				t.Fatalf("%s: digest %s is of %s and of %s", question, digest, had, content)
			}
			if had, ok := digests[content]; ok && had != digest {
				t.Fatalf("%s: %s has digests %s and %s", question, content, had, digest)
			}
			contents[digest], digests[content] = content, digest
		}
		for i := range rapid.IntRange(1, 30).Draw(t, "length") {
			body, by := anyBody(t), rapid.SampledFrom([]string{"operator:jo", "node:web"}).Draw(t, "by")
			s.Apply(tutti.Event{Seq: uint64(i + 1), By: by, Body: body})
			m.apply(by, body)
			for _, actor := range []string{"operator:jo", "node:web"} {
				if got, want := data.SetBy(s, actor), m.setBy(actor); got != want {
					t.Fatalf("%s has set %+v, want %+v", actor, got, want)
				}
			}
			for _, key := range someKeys {
				if got, _ := s.Secret(key); !slices.Equal(got.Replaced, m.replaced(key)) {
					t.Fatalf("secret %s: machines before of %v, want %v", key, got.Replaced, m.replaced(key))
				}
			}
			for _, node := range someNodes {
				for _, key := range someKeys {
					got := s.Answer(tutti.Query{Kind: tutti.QueryValue, Key: key}, data.Asker{Node: node})
					text, content := m.value(key, node)
					if string(got.Value) != text || got.Found != (text != "") {
						t.Fatalf("value %s of %s: got %v, want %q", key, node, got, text)
					}
					if got.Found {
						check(key, content, got.Digest)
					}
				}
				got := s.Answer(tutti.Query{Kind: tutti.QueryHiera, Key: "k"}, data.Asker{Node: node})
				if text, _ := m.hiera(node, "k"); string(got.Value) != text || string(s.Hiera(node)["k"]) != text {
					t.Fatalf("hiera k of %s: got %v, want %q", node, got, text)
				}
				for _, asker := range []data.Asker{{Node: node, Job: "j1"}, {Node: node, Overlay: true, Job: "j1"}, {Node: node, Overlay: true, Job: "j2"}} {
					for _, name := range someTypes {
						got := s.Answer(tutti.Query{Kind: tutti.QueryCollect, Type: name}, asker)
						names := []string{}
						for _, e := range got.Exports {
							names = append(names, fmt.Sprintf("%s %s %s", e.Title, e.Node, e.Parameters["p"]))
						}
						if diff := cmp.Diff(m.collect(name, asker), names); diff != "" {
							t.Fatalf("%s for %v: -want +got\n%s", name, asker, diff)
						}
						content := fmt.Sprint(names)
						if len(names) > 0 { // an empty set has no type
							content = name + content
						}
						check(name, content, got.Digest)
					}
				}
			}
		}
	})
}

// BenchmarkCollect asks for one type with 10,000 exports, while other types have 100,000
// exports.
func BenchmarkCollect(b *testing.B) {
	s := data.NewState()
	for n := range 100 {
		var es []tutti.Export
		for i := range 1100 {
			name := "Other"
			if i < 100 {
				name = "Web"
			}
			es = append(es, tutti.Export{Type: name, Title: fmt.Sprintf("%d-%d", n, i), Tags: []string{"a", "b"},
				Parameters: map[string]json.RawMessage{"port": json.RawMessage(fmt.Sprint(i % 10))}})
		}
		s.Apply(tutti.Event{Body: exports(tutti.NodeName(fmt.Sprintf("n%d", n)), es...)})
	}
	for _, filter := range []string{``, `["and",["=","tag","a"],["=","port",3]]`} {
		b.Run("filter="+filter, func(b *testing.B) {
			for b.Loop() {
				s.Answer(tutti.Query{Kind: tutti.QueryCollect, Type: "Web", Filter: json.RawMessage(filter)}, data.Asker{Node: "n1"})
			}
		})
	}
}
