package attack

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/wire"
)

// lie is a false message of a node, with the expected answer.
type lie struct {
	reason string
	op     string
	in     any
	codes  []tutti.Code // the answer must be one of these; an empty code means success
	audit  string       // audit is the expected audit entry. audit is empty if the message is only malformed.
}

var (
	refused = []tutti.Code{tutti.CodeRefused}
	invalid = []tutti.Code{tutti.CodeInvalid}
)

// The function `lies` returns false messages of a node that has claimed the run `own` and passed the
// gate of this run. The argument theirs is a run of node-01. The argument asked is an open question
// to node-01.
func lies(own tutti.Order, theirs tutti.RunID, asked string, victim *node) []lie {
	run := own.Run
	up := "../../../../etc/shadow"
	digest := tutti.DigestOf([]byte("nothing"))
	speak := "speak for run " + string(theirs)
	compile := "compile for " + string(victim.name)
	long := strings.Repeat("x", 600)
	export := func(types ...string) wire.Gate {
		g := wire.Gate{Run: run}
		for _, kind := range types {
			g.Exports = append(g.Exports, tutti.Export{Type: kind, Title: "x"})
		}
		return g
	}
	res := func(change func(*tutti.Result)) tutti.Result {
		r := result(run)
		change(&r)
		return r
	}
	return []lie{
		{"an order is for who asks, whatever the message says", wire.OpClaim, map[string]any{"node": "node-01", "run": theirs}, []tutti.Code{""}, ""},
		{"not a message", wire.OpClaim, "node-01", invalid, ""},
		{"a ticket that anybody guesses", wire.OpHello, wire.Hello{Next: "1"}, invalid, ""},

		{"the gate of another node's run", wire.OpGate, wire.Gate{Run: theirs}, refused, speak},
		{"the gate of no run", wire.OpGate, wire.Gate{Run: tutti.RunID(up)}, refused, "speak for run " + up},
		{"an export of a type without a grant", wire.OpGate, export("Cron"), refused, "export Cron"},
		{"a catalog that is no digest", wire.OpGate, wire.Gate{Run: run, CatalogReport: tutti.CatalogReport{Catalog: tutti.Digest(up)}}, invalid, ""},

		{"a question for another node's run", wire.OpAsk, wire.Question{Run: theirs, Query: tutti.Query{Kind: tutti.QueryValue, Key: "shared/x"}}, refused, speak},
		{"a value that is another node's", wire.OpAsk, wire.Question{Run: run, Query: tutti.Query{Kind: tutti.QueryValue, Key: "node/node-01/secret"}}, refused, "read node/node-01/secret"},
		{"a path", wire.OpAsk, wire.Question{Run: run, Query: tutti.Query{Kind: tutti.QueryValue, Key: "shared/" + up}}, invalid, ""},
		{"a path to what is its own and back", wire.OpAsk, wire.Question{Run: run, Query: tutti.Query{Kind: tutti.QueryValue, Key: "node/taken/../node-01/secret"}}, invalid, ""},
		{"a kind of question that is none", wire.OpAsk, wire.Question{Run: run, Query: tutti.Query{Kind: "sql", Key: "x"}}, invalid, ""},

		{"the hiera level of another node", wire.OpHiera, wire.HieraQuestion{Run: theirs}, refused, speak},

		{"compiling for another node", wire.OpCompile, wire.BeginServed{Run: theirs, For: victim.name}, refused, compile},
		{"a question as a compile host", wire.OpAsk, wire.Question{Run: theirs, For: victim.name, Query: tutti.Query{Kind: tutti.QueryValue, Key: "node/node-01/secret"}}, refused, compile},
		{"the hiera level of another node, as a compile host", wire.OpHiera, wire.HieraQuestion{For: victim.name}, refused, compile},
		{"exports of another node's run", wire.OpCompiled, wire.ServedCatalog{For: victim.name, Gate: wire.Gate{Run: theirs, Exports: []tutti.Export{{Type: "Database", Title: "x"}}}}, refused, compile},
		{"compiling for itself", wire.OpCompile, wire.BeginServed{Run: run, For: "taken"}, refused, "compile for taken"},

		{"a value for another node's run", wire.OpPublish, wire.Publish{Run: theirs, Key: "honest/x", Value: json.RawMessage("1")}, refused, speak},
		{"a value of another node", wire.OpPublish, wire.Publish{Run: run, Key: "node/node-01/x", Value: json.RawMessage("1")}, refused, "write node/node-01/x"},
		{"a value of another group", wire.OpPublish, wire.Publish{Run: run, Key: "honest/x", Value: json.RawMessage("1")}, refused, "write honest/x"},
		{"a value of operators", wire.OpPublish, wire.Publish{Run: run, Key: "shared/hiera/x", Value: json.RawMessage("1")}, refused, "write shared/hiera/x"},
		{"withdrawing what another owns", wire.OpPublish, wire.Publish{Run: run, Key: "node/node-01/secret", Withdraw: true}, refused, "write node/node-01/secret"},
		{"a key that climbs", wire.OpPublish, wire.Publish{Run: run, Key: "node/taken/../node-01/x", Value: json.RawMessage("1")}, invalid, ""},
		{"a key that is too long", wire.OpPublish, wire.Publish{Run: run, Key: "node/taken/" + long, Value: json.RawMessage("1")}, invalid, ""},

		{"facts after another node's run", wire.OpFacts, tutti.FactsSeen{Run: theirs, Facts: tutti.DigestOf(nil)}, refused, speak},
		{"facts with names of no end", wire.OpFacts, tutti.FactsSeen{Run: own.Run, Facts: tutti.DigestOf(nil), Changed: []string{long}}, invalid, ""},
		{"a foreign run under the id of another node's, without a report", wire.OpForeign, tutti.Foreign{Result: result(theirs)}, invalid, ""},
		{"facts of another node's run", wire.OpInventory, inventory(tutti.InventoryFacts, theirs), refused, speak},
		{"a catalog that the fleet file does not ask for", wire.OpInventory, inventory(tutti.InventoryCatalog, run), refused, ""},
		{"a part that is a path", wire.OpInventory, inventory(tutti.InventoryPart(up), run), invalid, ""},
		{"the result of another node's run", wire.OpResult, result(theirs), refused, speak},
		{"the result of a run that is no UUID", wire.OpResult, result(tutti.RunID(up)), invalid, ""},
		{"an outcome that is none", wire.OpResult, res(func(r *tutti.Result) { r.Outcome = "glorious" }), invalid, ""},
		{"a report that is nowhere", wire.OpResult, res(func(r *tutti.Result) { r.Report = digest }), []tutti.Code{tutti.CodeConflict}, ""},
		{"a report that is a path", wire.OpResult, res(func(r *tutti.Result) { r.Report = tutti.Digest(up) }), invalid, ""},

		{"a file that is not of its code", wire.OpBlobGet, wire.BlobGet{Run: run, Digest: digest}, refused, "fetch " + string(digest)},
		{"a file by its path", wire.OpBlobGet, wire.BlobGet{Run: run, Digest: tutti.Digest(up)}, refused, "fetch " + up},
		{"a file for another node's run", wire.OpBlobGet, wire.BlobGet{Run: theirs, Digest: digest}, refused, speak},
		{"code for another node's run", wire.OpCode, wire.CodeGet{Run: theirs}, refused, speak},
		{"code that it was not told to run", wire.OpCode, wire.CodeGet{Run: run, Code: digest}, refused, "fetch code " + string(digest)},

		{"a blob of any size and name is what it is", wire.OpBlobPut, map[string]any{"digest": digest, "size": -1}, []tutti.Code{""}, ""},
		{"a JWT for another key: there is no such field", wire.OpRenew, map[string]any{"key": victim.Key, "node": victim.name}, []tutti.Code{""}, ""},
		{"trust for another node: there is no such field, and the JWT is its own", wire.OpTrust, map[string]any{"key": victim.Key, "node": victim.name, "cas": []tutti.Digest{digest}, "issuer": "A"}, []tutti.Code{""}, ""},
		{"trust in CAs without end", wire.OpTrust, tutti.Pinned{CAs: slices.Repeat([]tutti.Digest{digest}, 1000)}, invalid, ""},
		{"who opens a secret of another node's run", wire.OpRecipients, wire.RecipientsQuestion{Run: theirs, Key: "node/taken/x"}, refused, speak},
		{"who opens a secret that is another node's", wire.OpRecipients, wire.RecipientsQuestion{Run: run, Key: "node/node-01/secret"}, refused, "write node/node-01/secret"},
		{"secrets of another node: there is no such field", wire.OpPieces, map[string]any{"node": victim.name}, []tutti.Code{""}, ""},
		{"a path as a key for secrets", wire.OpBox, wire.NewBox{BoxKey: up}, invalid, ""},
		{"another node's secret, sealed to its own key", wire.OpBox, wire.NewBox{
			BoxKey: base64.StdEncoding.EncodeToString(slices.Repeat([]byte{9}, 32)), Pieces: []wire.OwnPiece{{Key: "node/node-01/secret", ID: "x", Sealed: []byte("x")}},
		}, []tutti.Code{tutti.CodeConflict}, ""},
		{"leaving for another node: there is no such field, and its own run goes on", wire.OpLeave, map[string]any{"node": victim.name}, []tutti.Code{tutti.CodeConflict}, ""},
		{"a beat in another's name: there is no such field", wire.OpBeat, map[string]any{"node": victim.name, "run": theirs}, []tutti.Code{""}, ""},
		{"that another could not note its runs: there is no such field", wire.OpBeat, map[string]any{"node": victim.name, "unnoted": "made up"}, []tutti.Code{""}, ""},
		{"something live of another node's run", wire.OpLive, []tutti.Live{{Run: theirs, Node: victim.name, Phase: "apply"}}, refused, speak},
		{"acting on a question that nobody asked", wire.OpAct, tutti.RemoteAct{Request: "made up"}, []tutti.Code{tutti.CodeConflict}, ""},
		{"acting on a question to another node", wire.OpAct, tutti.RemoteAct{Request: asked}, refused, "act on a question that it did not get"},
		{"the answer to a question to another node", wire.OpAnswer, tutti.RemoteReply{Request: asked, Verdict: tutti.RemoteOK}, refused, "answer a question that it did not get"},
		{"an answer in another's name: there is no such field", wire.OpAnswer, map[string]any{"request": "made up", "node": victim.name, "verdict": "ok"}, []tutti.Code{""}, ""},
		{"an answer that is none", wire.OpAnswer, "ok", invalid, ""},
		{"an answer of 200 KiB", wire.OpAnswer, tutti.RemoteReply{Request: "made up", Message: strings.Repeat(long, 400)}, invalid, ""},
		{"how a node stands that is no report", wire.OpLease, "enabled", invalid, ""},
		{"an operation that is none", "shutdown", nil, invalid, ""},
	}
}

// inventory is a part of a node's inventory that the node has left out.
func inventory(part tutti.InventoryPart, run tutti.RunID) wire.Inventory {
	return wire.Inventory{Part: part, Held: tutti.Held{State: tutti.DigestOf(nil), Left: "too large", At: time.Now(), Run: run}}
}

// TestLies lets a compromised node lie in every field that it can send.
func TestLies(t *testing.T) {
	f := start(t)
	taken, victim := f.join("taken"), f.honest[0]
	if err := f.admin.SetValue(t.Context(), "node/node-01/secret", json.RawMessage(`"for node-01"`)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.admin.StartJob(t.Context(), api.StartJob{Plan: "taken", Mode: tutti.ModeApply}); err != nil {
		t.Fatal(err)
	}
	var claimed wire.Claimed
	f.eventually(func() error {
		if err := taken.call(t.Context(), wire.OpClaim, wire.Claim{}, &claimed); err != nil || claimed.Order == nil {
			return tutti.Errorf(tutti.CodeInternal, "nothing to claim: %v", err)
		}
		return nil
	})
	theirs, asked := f.runOf("node-01"), f.askVictim(victim)
	all := lies(*claimed.Order, theirs, asked, victim)
	told := map[string]bool{}
	var wanted []denial
	// A run that is not applying may not publish values. Therefore the exports come first, then the
	// gate.
	slices.SortStableFunc(all, func(a, b lie) int { return rank(a.op) - rank(b.op) })
	passed := false
	for _, l := range all {
		if !passed && l.op != wire.OpGate {
			if err := taken.call(t.Context(), wire.OpGate, wire.Gate{Run: claimed.Order.Run}, nil); err != nil {
				t.Fatal(err)
			}
			passed = true
		}
		told[l.op] = true
		var reply json.RawMessage
		err := taken.call(t.Context(), l.op, l.in, &reply)
		wantCode(t, l.op+": "+l.reason, err, l.codes...)
		if strings.Contains(string(reply), "for node-01") {
			t.Errorf("%s: %s: it got %s", l.op, l.reason, reply)
		}
		if err == nil && (l.op == wire.OpRenew || l.op == wire.OpTrust) {
			wantOwnJWT(t, reply, taken)
		}
		if l.audit != "" {
			wanted = append(wanted, denial{"node:taken", l.audit, ""})
		}
	}
	for _, d := range wanted {
		f.audited(d)
	}
	if missing := slices.DeleteFunc(operations(t), func(op string) bool { return told[op] }); len(missing) > 0 {
		t.Errorf("no lie is told with %q", missing)
	}
	// No lie may create an event about another node.
	for _, e := range f.events() {
		if _, denied := e.Body.(*tutti.Denied); e.By == "node:taken" && !denied && !slices.Contains([]string{
			"node.enrolled", "node.pinned", "run.claimed", "run.compiled", "run.gated", "exports.set",
		}, e.Body.Kind()) {
			t.Errorf("the log has %s %s by node taken", e.Body.Kind(), e.Body.ID())
		}
	}
	nodes, err := f.admin.ListNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if n.Node == "node-01" && (n.LastRun != theirs || n.Outcome != tutti.Unchanged) {
			t.Errorf("node-01 looks different: %+v", n)
		}
		if own := n.Node == taken.name; own != (n.Unnoted != "") {
			t.Errorf("node %s could not note runs: %q", n.Node, n.Unnoted)
		}
	}
	f.works("after")
}

// askVictim asks a node to enable its Puppet. The node does not answer, and the question stays open until the test
// ends. askVictim returns the question's id.
func (f *fleet) askVictim(victim *node) string {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan struct{})
	f.t.Cleanup(func() { cancel(); <-ended })
	go func() {
		defer close(ended)
		_ = f.admin.AskNodes(ctx, api.NodesQuestion{
			Action: tutti.RemoteEnable, On: `node == "` + string(victim.name) + `"`, Wait: tutti.MaxRemoteWait,
		}, func([]api.NodeAnswer) error { return nil })
	}()
	var asked string
	f.eventually(func() error {
		for _, e := range f.events() {
			if b, ok := e.Body.(*tutti.RemoteAsked); ok {
				asked = b.Request
				return nil
			}
		}
		return tutti.Errorf(tutti.CodeInternal, "nothing was asked")
	})
	return asked
}

// The function `rank` sorts the gate before the other operations.
func rank(op string) int {
	if op == wire.OpGate {
		return 0
	}
	return 1
}

// runOf returns the latest run of a node.
func (f *fleet) runOf(name tutti.NodeName) tutti.RunID {
	f.t.Helper()
	var run tutti.RunID
	for _, e := range f.events() {
		if b, ok := e.Body.(*tutti.RunClaimed); ok && b.Node == name {
			run = b.Run
		}
	}
	return run
}

// The function `operations` returns the operations in wire/message.go that a node may send.
func operations(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../wire/message.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(spec.Names[0].Name, "Op") && len(spec.Values) == 1 {
			if word, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value); err == nil {
				found[word] = true
			}
		}
		return true
	})
	if len(found) == 0 {
		t.Fatal("no operations found")
	}
	return slices.Sorted(maps.Keys(found))
}
