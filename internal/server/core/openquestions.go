package core

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/plain"
)

// openQuestions are the questions to nodes that are still open. The questions are in memory only. So a server that
// starts has no questions, and does not let a node act on a question from before the start.
type openQuestions struct {
	mu      *sync.Mutex
	waiting map[string]*openQuestion
}

// openQuestion is one question to several nodes.
type openQuestion struct {
	request tutti.RemoteRequest
	asker   *Visit // nil if the caller is root on the server
	began   time.Time
	nodes   map[tutti.NodeKey]*recipient
	Replies chan Reply // the channel has room for the replies of all nodes
}

// recipient is one node that gets the question.
type recipient struct {
	node     tutti.NodeName
	acts     bool // the server has told the node to go ahead
	answered bool
}

// Reply is the result of a question to one node.
type Reply struct {
	tutti.RemoteReply
	Node tutti.NodeName
	Took time.Duration
}

func newOpenQuestions() openQuestions {
	return openQuestions{mu: &sync.Mutex{}, waiting: map[string]*openQuestion{}}
}

// Open opens a question of the caller, so that its nodes can answer it and act on it.
func (a openQuestions) Open(ctx context.Context, request tutti.RemoteRequest, nodes []api.NodeView) *openQuestion {
	q := &openQuestion{request: request, asker: VisitOf(ctx), began: time.Now(), nodes: map[tutti.NodeKey]*recipient{}, Replies: make(chan Reply, len(nodes))}
	for _, v := range nodes {
		q.nodes[v.Key] = &recipient{node: v.Node}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[request.Request] = q
	return q
}

// Close ends a question. After that no node may answer the question or act on it. Close returns the
// answers that the caller has not received yet. For each node without an answer, Close returns that
// the node is silent. The list is sorted by node. A second Close returns nothing.
func (a openQuestions) Close(q *openQuestion) []Reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[q.request.Request] != q {
		return nil
	}
	delete(a.waiting, q.request.Request)
	close(q.Replies)
	var out []Reply
	for r := range q.Replies {
		out = append(out, r)
	}
	for _, n := range q.nodes {
		if n.answered {
			continue
		}
		text := "no answer within " + q.request.Wait.String()
		if n.acts {
			text += "; the server told the node to go ahead, so the node may have done this: ask for its status"
		}
		out = append(out, Reply{RemoteReply: tutti.RemoteReply{Verdict: tutti.RemoteSilent, Message: text}, Node: n.node})
	}
	slices.SortFunc(out, func(a, b Reply) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// maxTogether is the largest number of answers in one message to the caller.
const maxTogether = 100

// More returns the answers that have arrived since the last call.
func (q *openQuestion) More() []Reply {
	var out []Reply
	for len(out) < maxTogether {
		select {
		case r := <-q.Replies:
			out = append(out, r)
		default:
			return out
		}
	}
	return out
}

// The method `find` returns a question, and the recipient with this key. Both are nil if the question is over or never
// existed. The recipient is nil if the question did not go to this node. The caller must hold the lock.
func (a openQuestions) find(key tutti.NodeKey, request string) (*openQuestion, *recipient) {
	q := a.waiting[request]
	if q == nil {
		return nil, nil
	}
	return q, q.nodes[key]
}

// Answer accepts the first answer of a node and ignores later answers. Answer returns false if the
// question did not go to this node.
func (a openQuestions) Answer(key tutti.NodeKey, in tutti.RemoteReply) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	q, n := a.find(key, in.Request)
	if q == nil || n != nil && n.answered {
		return true // the answer came late or came twice
	}
	if n == nil {
		return false
	}
	n.answered = true
	q.Replies <- Reply{RemoteReply: checkReply(q.request, in), Node: n.node, Took: time.Since(q.began)}
	return true
}

// Asker returns the node with this key and the operator who has asked it. The operator is nil if root on the server has
// asked, or if the question did not go to this node.
func (a openQuestions) Asker(key tutti.NodeKey, request string) (asker *Visit, node tutti.NodeName, action tutti.RemoteAction) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q, n := a.find(key, request)
	if n == nil {
		return nil, "", ""
	}
	return q.asker, n.node, q.request.Action
}

// errOver is the answer to a node that asks to act after the question is over.
var errOver = tutti.Errorf(tutti.CodeConflict, "the request is over, nobody waits for it: do nothing")

// Act lets a node go ahead with a question, but only once. The node may act only if err is
// nil.
func (a openQuestions) Act(key tutti.NodeKey, request string) (asked bool, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	q, n := a.find(key, request)
	switch {
	case q == nil:
		return true, errOver
	case n == nil:
		return false, tutti.Errorf(tutti.CodeRefused, "this node was not asked to do anything")
	case n.acts || n.answered || time.Since(q.began) >= q.request.Wait || !q.request.Action.Effect():
		return true, errOver
	}
	n.acts = true
	return true, nil
}

// checkReply returns the node's answer if it fits the action. If the answer does not fit,
// checkReply returns a failure. The check is needed because a node may lie in every field.
func checkReply(request tutti.RemoteRequest, in tutti.RemoteReply) tutti.RemoteReply {
	out := tutti.RemoteReply{Request: request.Request, Verdict: in.Verdict, Message: plain.Words(in.Message), Rule: plain.Words(in.Rule)}
	fail := func(text string) tutti.RemoteReply {
		out.Verdict, out.Message = tutti.RemoteFailed, text
		return out
	}
	switch in.Verdict {
	case tutti.RemoteFailed, tutti.RemoteRefused:
		if out.Message == "" {
			return fail("the node does not say why")
		}
		return out
	case tutti.RemoteOK:
	default:
		return fail("the node's answer has no known verdict")
	}
	switch request.Action {
	case tutti.RemoteSummary:
		if in.Summary == nil {
			return fail("the node's answer has no summary")
		}
		out.Summary = plainSummary(*in.Summary)
	case tutti.RemoteResource:
		if len(in.Resource) == 0 {
			return fail("the node's answer has no resource")
		}
		out.Resource = in.Resource
	case tutti.RemoteFacts:
		if len(in.Facts) == 0 {
			return fail("the node's answer has no facts")
		}
		out.Facts = in.Facts
	case tutti.RemoteDiff:
		if len(request.Jobs) > 0 {
			if in.Diff == nil {
				return fail("the node's answer has no comparison")
			}
			out.Diff = plainDiff(*in.Diff)
		}
	case tutti.RemoteCompare:
		if len(in.Served) == 0 {
			return fail("the node's answer has no comparison")
		}
		out.Served = plainServed(*request.Served, in.Served)
	case tutti.RemoteCheck:
		if len(request.Jobs) > 0 {
			if in.Check == nil {
				return fail("the node's answer has no problems and does not say that there are none")
			}
			out.Check = plainCheck(*in.Check)
		}
	default:
		if in.Status == nil || !slices.Contains(puppetStates, in.Status.Status) {
			return fail("the node's answer has no status")
		}
		s := *in.Status
		if request.Action == tutti.RemoteDisable && s.Enabled || request.Action == tutti.RemoteEnable && !s.Enabled {
			return fail("the node reports that the change is done, but its status is " + s.Status)
		}
		s.DisableMessage, s.Message = plain.Words(s.DisableMessage), plain.Words(s.Message)
		out.Status = &s
	}
	return out
}

// puppetStates are the possible values of PuppetStatus.Status.
var puppetStates = []string{"disabled", "applying a catalog", "idling", "stopped"}

// maxTypes is the largest number of resource types in a summary.
const maxTypes = 1000

// plainDiff returns a node's comparison with bounded and safe texts. Only known kinds of changes count.
func plainDiff(in tutti.CatalogDiff) *tutti.CatalogDiff {
	out := tutti.CatalogDiff{Changes: []tutti.CatalogChange{}, Left: max(0, in.Left), Before: in.Before, After: in.After}
	for _, c := range in.Changes {
		if len(out.Changes) == tutti.MaxCatalogChanges || !slices.Contains(tutti.ChangeKinds, c.Kind) {
			out.Left++
			continue
		}
		out.Changes = append(out.Changes, tutti.CatalogChange{
			Kind: c.Kind, Resource: plain.Words(c.Resource), Parameter: plain.Words(c.Parameter),
			Text: plain.Cut(c.Text, tutti.MaxChangeText), Sensitive: c.Sensitive,
		})
	}
	return &out
}

// plainServed returns the comparisons of nodes and environments that the question names, each node once.
func plainServed(asked tutti.ServedQuestion, in []tutti.ServedDiff) []tutti.ServedDiff {
	out := []tutti.ServedDiff{}
	told := map[tutti.NodeName]bool{}
	for _, d := range in {
		if told[d.Node] || !slices.Contains(asked.Nodes, d.Node) {
			continue
		}
		told[d.Node] = true
		one := tutti.ServedDiff{Node: d.Node}
		for _, environment := range []string{asked.A, asked.B} {
			if why := d.Failed[environment]; why != "" {
				if one.Failed == nil {
					one.Failed = map[string]string{}
				}
				one.Failed[environment] = plain.Cut(plain.Words(why), tutti.MaxErrorText)
			}
		}
		if one.Failed == nil && d.Diff == nil {
			one.Failed = map[string]string{asked.B: "the node's answer has no comparison"}
		} else if one.Failed == nil {
			one.Diff = plainDiff(*d.Diff)
		}
		out = append(out, one)
	}
	return out
}

func plainCheck(in tutti.CodeChecked) *tutti.CodeChecked {
	out := tutti.CodeChecked{Problems: []tutti.CodeProblem{}, Left: max(0, in.Left)}
	for _, p := range in.Problems {
		if len(out.Problems) == tutti.MaxCodeProblems || p.Level != tutti.ProblemError && p.Level != tutti.ProblemWarning {
			out.Left++
			continue
		}
		out.Problems = append(out.Problems, tutti.CodeProblem{Level: p.Level, File: plain.Words(p.File), Line: max(0, p.Line), Message: plain.Words(p.Message)})
	}
	return &out
}

func plainSummary(in tutti.RunSummary) *tutti.RunSummary {
	in.ConfigVersion, in.Message = plain.Words(in.ConfigVersion), plain.Words(in.Message)
	types := map[string]int{}
	for name, count := range in.TypeDistribution {
		if len(types) < maxTypes {
			types[plain.Words(name)] = count
		}
	}
	in.TypeDistribution = types
	return &in
}
