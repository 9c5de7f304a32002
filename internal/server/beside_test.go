package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// costlyQuestion returns a query that needs about 4.5 million comparisons with 5,000 exports.
func costlyQuestion() tutti.Query {
	var terms []string
	for i := range 900 {
		terms = append(terms, fmt.Sprintf(`["=","port",%d]`, i))
	}
	return tutti.Query{Kind: tutti.QueryCollect, Type: "Database", Filter: json.RawMessage(`["or",` + strings.Join(terms, ",") + `]`)}
}

// manyExports makes db-01 export 5,000 resources, and returns active runs of the web nodes.
func manyExports(t *testing.T) (f fixture, web1, web2 tutti.RunID) {
	t.Helper()
	f, _, order := started(t, tutti.ModeApply)
	exports := make([]tutti.Export, 5_000)
	for i := range exports {
		exports[i] = database(fmt.Sprintf("db-%d", i))
	}
	f.db.Gate(wire.Gate{Run: order.Run, Exports: exports})
	f.db.Finish(order.Run)
	return f, f.web1.MustClaim().Run, f.web2.MustClaim().Run
}

// TestANodeHasItsShareOfComparisons checks a node that sends allowed questions again and again. The server
// tells this node to ask later. Other nodes get answers, and the first node gets an answer after a while.
func TestANodeHasItsShareOfComparisons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, run1, run2 := manyExports(t)
		ask := func(n *servertest.Node, run tutti.RunID, q tutti.Query) error {
			return n.Call(wire.OpAsk, wire.Question{Run: run, Query: q}, nil)
		}
		costly, answered := costlyQuestion(), 0
		var refused error
		for range 20 {
			if err := ask(f.web1, run1, costly); err != nil {
				refused = err
				break
			}
			answered++
		}
		wantCode(t, refused, tutti.CodeUnavailable, "ask again in")
		if answered < 1 || answered > 3 {
			t.Errorf("%d costly questions were answered at once, want 1 to 3", answered)
		}
		if err := ask(f.web2, run2, costly); err != nil {
			t.Errorf("another node: %v", err)
		}
		time.Sleep(10 * time.Second)
		if err := ask(f.web1, run1, costly); err != nil {
			t.Errorf("after ten seconds: %v", err)
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestALongQuestionIsPaidForBeforeItIsRead checks that reading a long question uses up the
// share, no matter what the question is.
func TestALongQuestionIsPaidForBeforeItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		n := f.Join("web-01")
		long := json.RawMessage(`"` + strings.Repeat("x", 60<<10) + `"`)
		var err error
		for range 1000 {
			if err = n.Call(wire.OpAsk, long, nil); tutti.CodeOf(err) != tutti.CodeInvalid {
				break
			}
		}
		wantCode(t, err, tutti.CodeUnavailable, "ask again in")
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestAQuestionThatIsRefusedIsRecorded checks that the server does not need the writer to refuse a question. After
// that, the writer records the refusal once.
func TestAQuestionThatIsRefusedIsRecorded(t *testing.T) {
	f, run, _ := manyExports(t)
	for range 3 {
		err := f.web1.Call(wire.OpAsk, wire.Question{Run: run, Query: tutti.Query{Kind: tutti.QueryValue, Key: "secret/x"}}, nil)
		wantCode(t, err, tutti.CodeRefused, "secret/x")
	}
	if got := f.Denials(); len(got) != 1 || got[0] != "node:web-01: read secret/x" {
		t.Errorf("recorded %q", got)
	}
	wants := 0
	for _, e := range f.Events() {
		if b, ok := e.Body.(*tutti.RunRefused); ok && b.Run == run {
			wants++
		}
	}
	if wants != 1 {
		t.Errorf("what the run wanted was recorded %d times, want once", wants)
	}
}
