package server

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/wire"
)

// asks are the questions that wait for answers of nodes. They are in memory only: a
// server that starts has none, and lets nobody act on one of before.
type asks struct {
	mu      *sync.Mutex
	waiting map[string]*ask
}

// ask is one question to several nodes.
type ask struct {
	request tutti.RemoteRequest
	began   time.Time
	nodes   map[tutti.NodeKey]*recipient
	replies chan reply // has room for all
}

// recipient is one node that was asked.
type recipient struct {
	node     tutti.NodeName
	acts     bool // it was told to go ahead
	answered bool
}

// reply is what became of a question to a node.
type reply struct {
	tutti.RemoteReply
	node tutti.NodeName
	took time.Duration
}

func newAsks() asks { return asks{mu: &sync.Mutex{}, waiting: map[string]*ask{}} }

// open lets nodes answer a question, and act on it.
func (a asks) open(request tutti.RemoteRequest, nodes []api.NodeView) *ask {
	q := &ask{request: request, began: time.Now(), nodes: map[tutti.NodeKey]*recipient{}, replies: make(chan reply, len(nodes))}
	for _, v := range nodes {
		q.nodes[v.Key] = &recipient{node: v.Node}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.waiting[request.Request] = q
	return q
}

// close lets nobody answer or act any more, and returns the answers that nobody has
// received yet and, for each node without one, that it is silent; sorted by node.
// Closing again returns nothing.
func (a asks) close(q *ask) []reply {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[q.request.Request] != q {
		return nil
	}
	delete(a.waiting, q.request.Request)
	close(q.replies)
	var out []reply
	for r := range q.replies {
		out = append(out, r)
	}
	for _, n := range q.nodes {
		if n.answered {
			continue
		}
		text := "no answer within " + q.request.Wait.String()
		if n.acts {
			text += "; it was told to go ahead, and may have done it: ask for its status"
		}
		out = append(out, reply{RemoteReply: tutti.RemoteReply{Verdict: tutti.RemoteSilent, Message: text}, node: n.node})
	}
	slices.SortFunc(out, func(a, b reply) int { return cmp.Compare(a.node, b.node) })
	return out
}

// maxTogether bounds how many answers travel in one message to whoever asked.
const maxTogether = 100

// more returns what has been answered by now.
func (q *ask) more() []reply {
	var out []reply
	for len(out) < maxTogether {
		select {
		case r := <-q.replies:
			out = append(out, r)
		default:
			return out
		}
	}
	return out
}

// find returns a question and the node of a key in it: no question if it is over or
// never was, no node if that was not asked. The lock must be held.
func (a asks) find(key tutti.NodeKey, request string) (*ask, *recipient) {
	q := a.waiting[request]
	if q == nil {
		return nil, nil
	}
	return q, q.nodes[key]
}

// answer takes a node's answer, the first one only; false: the node was not asked.
func (a asks) answer(key tutti.NodeKey, in tutti.RemoteReply) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	q, n := a.find(key, in.Request)
	if q == nil || n != nil && n.answered {
		return true // late, or twice
	}
	if n == nil {
		return false
	}
	n.answered = true
	q.replies <- reply{RemoteReply: checkReply(q.request, in), node: n.node, took: time.Since(q.began)}
	return true
}

// errOver is for who comes too late.
var errOver = tutti.Errorf(tutti.CodeConflict, "the request is over, nobody waits for it: do nothing")

// act lets a node go ahead, once; nil is the only yes.
func (a asks) act(key tutti.NodeKey, request string) (asked bool, err error) {
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

// checkReply returns an answer that says what the action was asked for, or a failure.
// A node may lie in every field.
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
	default:
		if in.Status == nil || !slices.Contains(puppetStates, in.Status.Status) {
			return fail("the node's answer has no status")
		}
		s := *in.Status
		if request.Action == tutti.RemoteDisable && s.Enabled || request.Action == tutti.RemoteEnable && !s.Enabled {
			return fail("the node says that it is done, and its status is " + s.Status)
		}
		s.DisableMessage, s.Message = plain.Words(s.DisableMessage), plain.Words(s.Message)
		out.Status = &s
	}
	return out
}

// puppetStates are the words of PuppetStatus.Status.
var puppetStates = []string{"disabled", "applying a catalog", "idling", "stopped"}

// maxTypes bounds the types of resources that a summary counts.
const maxTypes = 1000

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

// answered takes a node's answer to a question. The writer is not asked: a thousand
// of them come at once.
func (s *Server) answered(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := decode[tutti.RemoteReply](wire.OpAnswer, payload)
	if err != nil {
		return nil, err
	}
	if s.presence.Who(key) != "" && s.asks.answer(key, in) {
		return nil, nil
	}
	return nil, s.unasked(ctx, key, "answer a question that it was not asked", tutti.Errorf(tutti.CodeRefused, "this node was not asked"))
}

// act lets a node make the change that it was asked for.
func (s *Server) act(ctx context.Context, key tutti.NodeKey, payload []byte) (any, error) {
	in, err := decode[tutti.RemoteAct](wire.OpAct, payload)
	if err != nil {
		return nil, err
	}
	if s.presence.Who(key) == "" {
		return nil, s.unasked(ctx, key, "", nil)
	}
	asked, err := s.asks.act(key, in.Request)
	if !asked {
		err = s.unasked(ctx, key, "act on a question that it was not asked", err)
	}
	return nil, err
}

// unasked records who speaks of what is none of his business.
func (s *Server) unasked(ctx context.Context, key tutti.NodeKey, what string, cause error) error {
	return s.do(ctx, func(tx *tx) error {
		n, err := tx.node(key) // says why not
		if err != nil {
			return err
		}
		return tx.deny(tutti.ActorNode(n.Node), what, cause)
	})
}
