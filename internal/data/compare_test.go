package data_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
)

// The function `tagged` returns exports of a node with this number of tags each.
func tagged(node tutti.NodeName, count, tags int) *tutti.ExportsSet {
	set := &tutti.ExportsSet{Node: node, Count: count}
	for i := range count {
		e := tutti.Export{Type: "Web", Title: fmt.Sprint(i)}
		for k := range tags {
			e.Tags = append(e.Tags, fmt.Sprintf("t%04d", k))
		}
		set.Exports = append(set.Exports, e)
	}
	return set
}

func stateOf(bodies ...tutti.Body) *data.State {
	s := data.NewState()
	for i, b := range bodies {
		s.Apply(tutti.Event{Seq: uint64(i + 1), Body: b})
	}
	return s
}

func collectorOf(filter string) tutti.Query {
	return tutti.Query{Kind: tutti.QueryCollect, Type: "Web", Filter: json.RawMessage(filter)}
}

// A node may report the same read many times, in different forms. Outdated compares such a question once, and lists
// no exports.
func TestEqualReadsAreComparedOnce(t *testing.T) {
	s := stateOf(tagged("a", 500, 3))
	asker := data.Asker{Node: "b"}
	now := s.Answer(collectorOf(`["=","tag","t0001"]`), asker)
	if len(now.Exports) != 500 {
		t.Fatalf("%d exports pass", len(now.Exports))
	}
	reads := make([]tutti.Read, 20_000)
	for i := range reads {
		reads[i] = tutti.Read{Query: collectorOf([]string{`["=","tag","t0001"]`, `["and",["=","tag","T0001"]]`}[i%2]), Found: true, Digest: now.Digest}
	}
	one, all := data.NewComparison(reads[:1]), data.NewComparison(reads)
	if a, b := one.Cost(s, asker), all.Cost(s, asker); a != b {
		t.Errorf("one read costs %d, equal ones cost %d", a, b)
	}
	var outdated []tutti.Read
	if used := testing.AllocsPerRun(1, func() { outdated = all.Outdated(s, asker) }); used > 100 {
		t.Errorf("%.0f allocations to compare equal reads", used)
	}
	if len(outdated) != 0 {
		t.Errorf("%d reads are outdated", len(outdated))
	}
	// the digests that the node reported for the same question may differ
	reads[7].Digest = tutti.DigestOf([]byte("x"))
	if diff := cmp.Diff(reads[7:8], data.NewComparison(reads).Outdated(s, asker)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// Match searches for a tag. Among a thousand tags, Match looks at about ten.
func TestATagIsSearchedFor(t *testing.T) {
	f, err := data.ParseFilter(json.RawMessage(`["=","tag","t0001"]`))
	if err != nil {
		t.Fatal(err)
	}
	e := tagged("a", 1, 990).Exports[0]
	if !f.Match(e) {
		t.Error("the tag is not found")
	}
	// now the order is wrong, so only a search through all tags finds the tag
	e.Tags[1], e.Tags[988] = e.Tags[988], e.Tags[1]
	if f.Match(e) {
		t.Error("all tags are looked at")
	}
}

// The computed cost is about the number of comparisons that are made.
func TestACostIsOfWhatIsCompared(t *testing.T) {
	asker := data.Asker{Node: "other"}
	cost := func(s *data.State, filter string) int {
		return data.NewComparison([]tutti.Read{{Query: collectorOf(filter)}}).Cost(s, asker)
	}
	few, many := stateOf(tagged("a", 100, 3)), stateOf(tagged("a", 100, 990))
	if a, b := cost(few, `["=","tag","x"]`), cost(many, `["=","tag","x"]`); b < 3*a || b > 5*a {
		t.Errorf("a tag among 3 costs %d, among 990 %d: want 2 and 10 steps", a, b)
	}
	if a, b := cost(few, `["=","x","y"]`), cost(few, `["=","x","`+strings.Repeat("y", 50_000)+`"]`); b < 50*a {
		t.Errorf("a value of one byte costs %d, one of 50,000 %d", a, b)
	}
	if a, b := cost(few, ``), few.Cost(collectorOf(``)); b < 4*a {
		t.Errorf("to compare costs %d, to list and sort %d", a, b)
	}
	// The cost includes all exports that the nodes of a job have handed over.
	overlaid := stateOf(&tutti.JobStarted{Job: "j"}, tagged("a", 100, 3))
	before := cost(overlaid, ``)
	for i := range 50 {
		overlaid.Apply(tutti.Event{Body: &tutti.ExportsSet{Node: tutti.NodeName(fmt.Sprint("n", i)), Job: "j", Overlay: true}})
	}
	handed := tagged("b", 70, 3)
	handed.Job, handed.Overlay = "j", true
	overlaid.Apply(tutti.Event{Body: handed})
	if after := cost(overlaid, ``); after != before+51+70 {
		t.Errorf("it costs %d, with what a job's nodes hand over %d", before, after)
	}
	overlaid.Apply(tutti.Event{Body: &tutti.JobFinished{Job: "j"}})
	if after := cost(overlaid, ``); after != before {
		t.Errorf("when the job has ended it costs %d, want %d", after, before)
	}
	// If a node's record already has the question, no search is necessary.
	q := collectorOf(`["=","tag","x"]`)
	many.Remember("c", &tutti.Questions{Reads: []tutti.Read{{Query: q, Found: true}}}, "")
	if known := cost(many, `["=","tag","x"]`); known > 1 {
		t.Errorf("a question that a record has costs %d", known)
	}
	many.Apply(tutti.Event{Body: &tutti.NodeRemoved{Node: "a"}})
	if left := many.Cost(q); left != 0 {
		t.Errorf("without exports an answer costs %d", left)
	}
}
