package data_test

import (
	"encoding/json"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/data"
)

// These constants describe the fleet of the benchmarks. Each node asks the questions of its role: 1,950 absent hiera
// keys, ten values, ten hiera keys and twenty collectors. Each node also asks for ten values that a hundred nodes
// share. Each node exports three resources.
const (
	benchNodes  = 10_000
	benchRoles  = 20
	benchAbsent = 1950
	benchRead   = 10
	benchTypes  = 20
)

func benchNode(n int) tutti.NodeName {
	return tutti.NodeName(fmt.Sprintf("role%02d-%05d.example.net", n%benchRoles, n))
}

func benchExports(node tutti.NodeName, n int) *tutti.ExportsSet {
	es := []tutti.Export{{Type: "Sshkey", Title: string(node)}}
	for i := range 2 {
		es = append(es, tutti.Export{Type: fmt.Sprintf("Type%d", (n/benchRoles+i)%benchTypes), Title: string(node), Tags: []string{fmt.Sprintf("role%d", n%benchRoles)}})
	}
	return exports(node, es...)
}

// benchAsks returns the questions of a node as if they were read from a blob. These
// questions share no text with the questions of other nodes.
func benchAsks(b *testing.B, s *data.State, node tutti.NodeName, n int, keys []string) *tutti.Questions {
	role := n % benchRoles
	var queries []tutti.Query
	for i := range benchTypes {
		queries = append(queries, tutti.Query{Kind: tutti.QueryCollect, Type: fmt.Sprintf("Type%d", i), Filter: json.RawMessage(fmt.Sprintf(`["=","tag","role%d"]`, role))})
	}
	for i := range benchRead {
		queries = append(queries, tutti.Query{Kind: tutti.QueryHiera, Key: fmt.Sprintf("role%02d::class::key%d", role, i)})
	}
	for i := range benchRead {
		queries = append(queries, tutti.Query{Kind: tutti.QueryValue, Key: fmt.Sprintf("shared/role%02d/value%d", role, i)})
	}
	for i := range benchRead {
		queries = append(queries, tutti.Query{Kind: tutti.QueryValue, Key: fmt.Sprintf("shared/rack%03d/value%d", n/100, i)})
	}
	raw, err := json.Marshal(benchAnswers(s, node, queries))
	if err != nil {
		b.Fatal(err)
	}
	a := &tutti.Questions{}
	if err := json.Unmarshal(raw, a); err != nil {
		b.Fatal(err)
	}
	a.Absent = tutti.DigestOf(fmt.Append(nil, role))
	a.Keys = keys
	return a
}

// benchAnswers does the same as the function `asked`, but for very many questions. If several nodes export
// nothing of a type, benchAnswers finds the answer for these nodes only once.
func benchAnswers(s *data.State, node tutti.NodeName, queries []tutti.Query) *tutti.Questions {
	own := map[string]bool{}
	for _, e := range s.Exports(node) {
		own[e.Type] = true
	}
	a := &tutti.Questions{}
	for _, q := range queries {
		asker, id := data.Asker{Node: node}, fmt.Sprint(q)
		if !own[q.Type] {
			asker = data.Asker{}
		}
		now, known := benchFleet.answers[id]
		if !known || own[q.Type] {
			now = s.Answer(q, asker)
		}
		if !own[q.Type] {
			benchFleet.answers[id] = now
		}
		a.Reads = append(a.Reads, tutti.Read{Query: q, Found: now.Found, Digest: now.Digest})
	}
	return a
}

// benchKeys returns the keys that are absent for one role. Each role has different keys.
func benchKeys(role int) []string {
	keys := make([]string, benchAbsent)
	for i := range keys {
		keys[i] = fmt.Sprintf("role%02d::another_class::parameter_%04d", role, i)
	}
	return keys
}

// benchData returns the fleet's data without an index.
func benchData() *data.State {
	s := data.NewState()
	apply := func(body tutti.Body) { s.Apply(tutti.Event{Seq: s.Seq() + 1, Body: body}) }
	for i := range benchRead {
		for role := range benchRoles {
			apply(set(fmt.Sprintf("shared/hiera/role%02d::class::key%d", role, i), `1`, ""))
			apply(set(fmt.Sprintf("shared/role%02d/value%d", role, i), `1`, ""))
		}
		for rack := range benchNodes / 100 {
			apply(set(fmt.Sprintf("shared/rack%03d/value%d", rack, i), `1`, ""))
		}
	}
	for n := range benchNodes {
		apply(benchExports(benchNode(n), n))
	}
	return s
}

func live() float64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // the second collection frees what the finalizers of the first collection have released
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// benchFleet is built only once. Its field `bytes` is the memory that the calls of
// Remember needed.
var benchFleet struct {
	once    sync.Once
	answers map[string]data.Answer
	state   *data.State
	bytes   float64
}

func indexedFleet(b *testing.B) *data.State {
	f := &benchFleet
	f.once.Do(func() {
		f.state = benchData()
		f.answers = map[string]data.Answer{}
		before := live()
		for role := range benchRoles {
			keys := benchKeys(role)
			for n := role; n < benchNodes; n += benchRoles {
				f.state.Remember(benchNode(n), benchAsks(b, f.state, benchNode(n), n, keys), "")
			}
		}
		f.state.Touched()
		f.answers = nil
		f.bytes = live() - before
	})
	return f.state
}

// reportCPU measures the CPU time of one iteration. On a shared machine this time
// varies less than the wall time. The measurement begins with the call of reportCPU
// and ends with the call of the returned function.
func reportCPU(b *testing.B) func() {
	cpu := func() float64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return float64(u.Utime.Nano() + u.Stime.Nano())
	}
	start := cpu()
	return func() { b.ReportMetric((cpu()-start)/float64(b.N)/1e6, "cpu-ms/op") }
}

func BenchmarkIndexMemory(b *testing.B) {
	s := indexedFleet(b)
	for b.Loop() {
		if n := len(s.OutdatedOf(benchNode(1), "", 0)); n != 0 {
			b.Fatalf("%d outdated", n)
		}
	}
	b.ReportMetric(benchFleet.bytes/(1<<20), "MiB")
	b.ReportMetric(benchFleet.bytes/benchNodes/1024, "KiB/node")
}

func BenchmarkIndexRemember(b *testing.B) {
	s := indexedFleet(b)
	benchFleet.answers = map[string]data.Answer{}
	a := benchAsks(b, s, benchNode(7), 7, benchKeys(7))
	for b.Loop() {
		s.Remember(benchNode(7), a, "")
	}
	s.Touched()
}

// BenchmarkIndexChange changes something and changes it back. After each change, the
// benchmark asks which nodes are outdated.
func BenchmarkIndexChange(b *testing.B) {
	const key = "shared/hiera/role07::another_class::parameter_0500"
	export := func(title string) tutti.Body {
		es := benchExports(benchNode(7), 7)
		es.Exports[1].Title = title
		return es
	}
	for _, tc := range []struct {
		name      string
		one, back tutti.Body
		outdated  int
	}{
		{"nobody", set("shared/nobody", `2`, ""), set("shared/nobody", `1`, ""), 0},
		{"nobody, exports", exports("other", tutti.Export{Type: "Type1", Title: "1"}), exports("other"), 0},
		{"100", set("shared/rack007/value3", `2`, ""), set("shared/rack007/value3", `1`, ""), 100},
		{"500, exports", export("new"), export(string(benchNode(7))), 499},
		{"500, absent key", set(key, `1`, ""), &tutti.ValueUnset{Key: key}, 500},
	} {
		b.Run("readers="+tc.name, func(b *testing.B) {
			s := indexedFleet(b)
			report := reportCPU(b)
			for i := 0; b.Loop(); i++ {
				body, want := tc.one, tc.outdated
				if i%2 == 1 {
					body, want = tc.back, 0
				}
				s.Apply(tutti.Event{Seq: s.Seq() + 1, Body: body})
				got := 0
				for _, node := range s.Touched() {
					got += len(s.OutdatedOf(node, "", 1))
				}
				if got != want {
					b.Fatalf("%d outdated, want %d", got, want)
				}
			}
			report()
			s.Apply(tutti.Event{Seq: s.Seq() + 1, Body: tc.back})
			s.Touched()
		})
	}
}

// BenchmarkIndexStorm has a thousand nodes that all collect the exports of all
// nodes. It changes one export.
func BenchmarkIndexStorm(b *testing.B) {
	const nodes = 1000
	s := data.NewState()
	q := tutti.Query{Kind: tutti.QueryCollect, Type: "Sshkey"}
	for n := range nodes {
		s.Apply(tutti.Event{Seq: s.Seq() + 1, Body: benchExports(benchNode(n), n)})
	}
	for n := range nodes {
		s.Remember(benchNode(n), asked(s, benchNode(n), "", nil, q), "")
	}
	s.Touched()
	defer reportCPU(b)()
	for i := 0; b.Loop(); i++ {
		es := benchExports(benchNode(0), 0)
		es.Exports[0].Parameters = map[string]json.RawMessage{"key": json.RawMessage(fmt.Sprint(i))}
		s.Apply(tutti.Event{Seq: s.Seq() + 1, Body: es})
		got := 0
		for _, node := range s.Touched() {
			got += len(s.OutdatedOf(node, "", 1))
		}
		if got != nodes-1 {
			b.Fatalf("%d outdated", got)
		}
	}
}

// BenchmarkIndexGraph visits all questions of all nodes once, and all producers of
// each question once.
func BenchmarkIndexGraph(b *testing.B) {
	s := indexedFleet(b)
	defer reportCPU(b)()
	for b.Loop() {
		producers := map[*data.Question]int{}
		for n := range benchNodes {
			for q := range s.Questions(benchNode(n)) {
				if _, done := producers[q]; done {
					continue
				}
				producers[q] = 0
				for range q.Producers("") {
					producers[q]++
				}
			}
		}
	}
}
