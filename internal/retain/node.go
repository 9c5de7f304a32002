package retain

import "github.com/tutti-project/tutti"

// The following rules are for nodes and tokens. The events about joining and leaving are
// always needed, because after each start the server revokes all removed keys again.

func nodeKey(n tutti.NodeName) string { return "node " + string(n) }

func noteNode(l *Ledger, e tutti.Event) { l.last[nodeKey(tutti.NodeName(e.Body.ID()))] = e.Seq }

// isLastOfNode is the rule for events that have no meaning after the node joins again or is removed.
func isLastOfNode(l *Ledger, e tutti.Event) bool {
	return l.last[nodeKey(tutti.NodeName(e.Body.ID()))] == e.Seq
}

func noteEnrolled(l *Ledger, e tutti.Event) {
	b := e.Body.(*tutti.NodeEnrolled)
	if key, joined := l.keys[b.Node]; joined && key != b.Key { // the log is from release 0.2.0 or earlier
		noteRemoved(l, tutti.Event{Seq: e.Seq, At: e.At, Body: &tutti.NodeRemoved{Node: b.Node, Replaced: true}})
	}
	noteNode(l, e)
	l.enrolled[b.Node], l.keys[b.Node] = b.Token, b.Key
}

// noteRemoved forgets the publications of a removed node. The run that the node claimed is no longer its latest run.
func noteRemoved(l *Ledger, e tutti.Event) {
	b := e.Body.(*tutti.NodeRemoved)
	node := b.Node
	noteNode(l, e)
	delete(l.enrolled, node)
	delete(l.keys, node)
	delete(l.latest, node)
	delete(l.own, node)
	delete(l.applied, node)
	delete(l.passed, node)
	delete(l.reported, node)
	delete(l.left, node)
	delete(l.shown, node)
	delete(l.preview, node)
	delete(l.partial, node)
	delete(l.last, withdrawnKey(node))
	delete(l.foreign, node)
	delete(l.answered, node)
	if !b.Replaced {
		delete(l.last, pausedKey(tutti.Event{Body: &tutti.Paused{Target: string(node)}}))
	}
	l.since[node] = e.Seq
	for o := range l.overlays {
		if o.node == node {
			delete(l.overlays, o)
		}
	}
	if b.Keeps {
		return
	}
	delete(l.last, exportsKey(node))
	for _, v := range l.values {
		v.gone = v.gone || v.owner == node
	}
}

func noteToken(l *Ledger, e tutti.Event) {
	b := e.Body.(*tutti.TokenCreated)
	l.tokens[b.Token] = b.Expires
}

// needsToken reports whether an event of a token is still needed. The event is needed until tokenGrace after the
// end of the token. The event is also needed as long as the node that joined with the token may enrol again.
func needsToken(l *Ledger, e tutti.Event) bool {
	id := tutti.TokenID(e.Body.ID())
	if l.now.Before(l.tokens[id].Add(tokenGrace)) {
		return true
	}
	for _, token := range l.enrolled {
		if token == id {
			return true
		}
	}
	return false
}

// noteClassified notes the last answer of the ENC about a node, and the first answer since there was none. An order that is
// older than the first answer is not given.
func noteClassified(l *Ledger, e tutti.Event) {
	b := e.Body.(*tutti.NodeClassified)
	noteLast(l, e)
	switch {
	case b.Classification == nil:
		delete(l.answered, b.Node)
		delete(l.last, lastKey(tutti.Event{Body: &tutti.NodeMatched{Node: b.Node}})) // it may rest on the answer
	case l.answered[b.Node] == 0:
		l.answered[b.Node] = e.Seq
	}
}

func needsClassified(l *Ledger, e tutti.Event) bool {
	return isLast(l, e) || l.answered[tutti.NodeName(e.Body.ID())] == e.Seq
}
